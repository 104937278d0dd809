package setups

import (
	"context"
	"fmt"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// SignIns are the sign-ins that people begin for secrets that flows wait for.
type SignIns struct{ *Flows }

// Wanted is the secret that a flow waits for.
func (f SignIns) Wanted(id string) (control.Wanted, error) {
	now, err := f.look(id)
	switch {
	case err != nil:
		return control.Wanted{}, err
	case now.Wants == nil:
		return control.Wanted{}, fmt.Errorf("%w: the set-up of %q waits for no secret", control.ErrInvalid, now.Server)
	}
	return *now.Wants, nil
}

// SigningIn records that a person has begun a sign-in for the secret that a flow waits for. The context that it returns
// ends when the flow no longer waits for the secret.
func (f SignIns) SigningIn(ctx context.Context, id, key string) (context.Context, error) {
	if err := f.event(id, setup.Event{Kind: setup.SigningIn, Key: key}, nil, anyTurn); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		err := f.Follow(ctx, id, false, func(now control.Flow) error {
			if now.Wants == nil || now.Wants.Key != key {
				return control.ErrSignInNeedless
			}
			return nil
		})
		end(err)
	}()
	return ctx, nil
}

// NotSignedIn records that a sign-in has ended without a token. Without words, the person gave up.
func (f SignIns) NotSignedIn(id, words string) {
	e := setup.Event{Kind: setup.NotSignedIn, Words: cleaned(f.Records, words)}
	_ = f.event(id, e, nil, anyTurn) // it may have ended
}
