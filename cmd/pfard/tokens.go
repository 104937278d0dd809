package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// tokens keeps the OAuth token sets fresh that servers use. It has no network: a process of its own refreshes one set
// and gives back what came of it, which is in the vault before anybody else has it.
//
// A provider may take a refresh token once only. If all of this machine stops between its answer and the end of take,
// the old one in the vault is refused from then on, and the owner is told so. A pfard that ends alone loses nothing:
// the process holds what it got until a pfard has taken it.
type tokens struct {
	log    *slog.Logger
	vault  *vault.Vault
	wall   wall
	jitter func() float64 // 0 to 1
	users  tokenUsers
	runs   refresher // nil: there is nothing to refresh a set with

	signIns *signIns // that can obtain another set

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	storing sync.Mutex // held while a set in the vault is replaced; taken before mu
	mu      sync.Mutex
	of      map[string]*tokenSet // by key, those in use
	under   map[string]bool      // keys of sets that are being refreshed
}

// tokenUsers are those who use token sets.
type tokenUsers interface {
	tokenChanged(key string)                // a set has another access token, or other scopes
	tokenKnown(key string, values [][]byte) // these values are about to be in use, and no text is to have them
	tokensTurned()                          // what is said of sets has changed
	tokenRefused(key, words string)         // nobody tries again: the owner must do something
	tokenHanded(key string) error           // a process is about to be given a set; with an error it must not be
}

// refresher has processes refresh sets.
type refresher interface {
	refresh(ctx context.Context, key string, set []byte) error // returns when the process has ended
	refreshMended(key string)                                  // what was refused has been replaced
}

// tokenSet is what is known of one set that servers use.
type tokenSet struct {
	fixed    bool // it has no refresh token: nothing renews it
	set      bool // it is one: there are other secrets
	obtained time.Time
	expiry   time.Time
	next     time.Time     // when it is refreshed; zero: never
	within   time.Duration // of now, at the most: the clock may be set back
	pause    time.Duration // before the next try, after one that failed
	problem  string        // why the last try failed; "": it did not
	final    bool          // and there will be no other
	refused  bool          // by a server that wants another one
	unwanted bool          // a server has refused it, and nothing renews it
	awaited  time.Time     // since when a server waits for it; zero: none does, or has in vain
}

const (
	firstRetry   = 30 * time.Second
	lastRetry    = 30 * time.Minute
	youngest     = 10 * time.Minute // age of an access token from which on another one may help where it is refused
	refreshLimit = 2 * time.Minute  // for one refresh: more than its process takes
	// patience is how long a server waits for a set whose access token has ended. Then it gets what there is: it may have
	// tools that need none, and says better what fails.
	patience   = 2 * time.Minute
	settleTime = 25 * time.Second // for an answer of an endpoint and its way here
	storeTime  = time.Minute      // for which it is tried to store what came of a refresh
)

func newTokens(log *slog.Logger, v *vault.Vault) *tokens {
	t := &tokens{log: log, vault: v, jitter: rand.Float64, of: map[string]*tokenSet{}, under: map[string]bool{}}
	t.wall = &alarm{ring: t.due}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

var errNoRefresher = errors.New("no program to refresh the token with")

// close has nothing begin any more. What has begun goes on: its process gives the next pfard what came of it.
func (t *tokens) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
	if a, ok := t.wall.(*alarm); ok {
		a.close()
	}
}

// settle waits for what has begun, after close, where its processes end with this one.
func (t *tokens) settle() {
	over := make(chan struct{})
	go func() {
		defer close(over)
		t.running.Wait()
	}()
	select {
	case <-over:
	case <-time.After(settleTime):
	}
}

// use says which keys enabled servers use.
func (t *tokens) use(keys []string) {
	t.mu.Lock()
	for key := range t.of {
		if !slices.Contains(keys, key) {
			delete(t.of, key)
		}
	}
	for _, key := range keys {
		if t.of[key] == nil {
			t.of[key] = t.look(key)
		}
	}
	t.mu.Unlock()
	t.due()
}

// stored takes it that somebody has stored or removed a secret.
func (t *tokens) stored(key string) {
	t.mu.Lock()
	before := t.of[key]
	t.mu.Unlock()
	if before == nil {
		return
	}
	if before.final && t.runs != nil {
		t.runs.refreshMended(key)
	}
	t.mu.Lock()
	if t.of[key] != nil {
		t.of[key] = t.look(key)
	}
	t.mu.Unlock()
	t.due()
}

// look reads what is known of a secret. What is not there, or cannot be read, is said when it is needed.
func (t *tokens) look(key string) *tokenSet {
	set, _, ok, err := t.vault.Tokens(key)
	if err != nil || !ok {
		return &tokenSet{}
	}
	return t.fresh(set)
}

func (t *tokens) fresh(set oauth.Set) *tokenSet {
	now := t.wall.now()
	at := set.RefreshAt(now, t.jitter())
	return &tokenSet{
		set: true, fixed: set.RefreshToken == "", obtained: set.Obtained, expiry: set.Expiry, next: at,
		within: max(0, at.Sub(now)),
	}
}

// due begins to refresh what is to be refreshed by now, and has itself called again when the next one is.
func (t *tokens) due() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	now := t.wall.now()
	var next time.Time
	for key, k := range t.of {
		if k.next.IsZero() || t.under[key] {
			continue
		}
		if k.next.Sub(now) > k.within {
			k.next = now.Add(k.within)
		}
		if !now.Before(k.next) {
			t.under[key] = true
			t.running.Go(func() { t.refresh(key) })
		} else if next.IsZero() || k.next.Before(next) {
			next = k.next
		}
	}
	if err := t.wall.wake(next); err != nil {
		t.log.Error("no OAuth token set is refreshed in time", "error", err)
	}
}

// refused takes it that a server has refused the access token of a set, and has another one obtained. One that was
// obtained just now is not replaced: whoever refuses it would refuse the next one, too, and could have refresh tokens
// used up without end.
func (t *tokens) refused(key string) {
	t.mu.Lock()
	k, now := t.of[key], t.wall.now()
	if k == nil || !k.set || k.fixed || k.final || k.refused || now.Sub(k.obtained) < youngest {
		if k != nil && (!k.set || k.fixed || k.final) {
			k.unwanted = true
		}
		t.mu.Unlock()
		return
	}
	k.refused, k.next, k.within = true, now, 0
	t.mu.Unlock()
	t.log.Info("a server has refused an OAuth token, which is refreshed", "key", key)
	t.due()
}

// refreshes reports whether a refused token is being replaced. problem says why the last try has failed.
func (t *tokens) refreshes(key string) (now bool, problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.of[key]; k != nil && k.refused {
		return k.problem == "", k.problem
	}
	return false, ""
}

// refresh has a process refresh a set, and makes of its silence a failure.
func (t *tokens) refresh(key string) {
	t.mu.Lock()
	before := t.of[key]
	t.mu.Unlock()
	_, text, ok, err := t.vault.Tokens(key)
	if err == nil && ok {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), refreshLimit)
		err = errNoRefresher
		if t.runs != nil {
			err = t.runs.refresh(ctx, key, text)
		}
		cancel()
	}
	t.mu.Lock()
	delete(t.under, key)
	k := t.of[key]
	silent := k != nil && k == before && !k.final && !t.wall.now().Before(k.next)
	t.mu.Unlock()
	if silent {
		if err == nil {
			err = errors.New("the process ended without an answer")
		}
		t.fail(key, attach.Refreshed{Error: err.Error()})
	}
	t.due()
}

// take is given what came of a refresh. When it returns, the new tokens are stored if they are of use: also a refresh
// token that came with a failure, for the one before may be good no more.
func (t *tokens) take(key string, r attach.Refreshed, content []byte) {
	if r.Error != "" && content == nil {
		if t.isOf(key, r.Base) {
			t.fail(key, r)
		}
		return
	}
	var answer oauth.Answer
	if json.Unmarshal(content, &answer) != nil {
		t.fail(key, attach.Refreshed{Error: "the process of the refresh gave no valid answer"})
		return
	}
	if r.Error != "" {
		answer.AccessToken = ""
	}
	set, another, err := t.replace(key, r, answer)
	switch {
	case errors.Is(err, errOutdated):
		t.log.Info("a refreshed OAuth token set is dropped: another one has been stored meanwhile", "key", key)
		return
	case err != nil:
		if r.Error == "" {
			r.Error = err.Error()
		}
		t.fail(key, r)
		return
	}
	t.mu.Lock()
	if t.of[key] != nil {
		t.of[key] = t.fresh(set)
		// Whatever the endpoint says: it is not asked without end.
		if k, soonest := t.of[key], t.wall.now().Add(firstRetry); !k.next.IsZero() && k.next.Before(soonest) {
			k.next, k.within = soonest, firstRetry
		}
	}
	t.mu.Unlock()
	t.log.Info("vault", "operation", "refresh", "key", key, "outcome", "done", "expiry", until(set.Expiry))
	if another {
		t.users.tokenChanged(key)
	}
	t.users.tokensTurned()
}

var (
	errOutdated = errors.New("another set has been stored")
	errUseless  = errors.New("the answer is of no use")
)

// isOf reports whether a set is the one in the vault.
func (t *tokens) isOf(key, base string) bool {
	_, text, ok, err := t.vault.Tokens(key)
	return err == nil && ok && units.Digest(text) == base
}

// replace stores a refreshed set in place of the one that it was made of, and says whether its access token is another,
// or what that was granted. While the vault cannot be written, on a full disk, it tries again.
func (t *tokens) replace(key string, r attach.Refreshed, answer oauth.Answer) (set oauth.Set, another bool, err error) {
	asked, now := r.Asked, t.wall.now()
	if asked.After(now) || now.Sub(asked) > refreshLimit { // the clock was set
		asked = now
	}
	for end := time.Now().Add(storeTime); ; {
		old, set, err := t.swap(key, r.Base, answer, asked)
		if err == nil || errors.Is(err, errOutdated) || errors.Is(err, errUseless) || time.Now().After(end) {
			return set, set.AccessToken != old.AccessToken || !slices.Equal(set.Scopes, old.Scopes), err
		}
		t.log.Error("storing a refreshed OAuth token set, trying again", "key", key, "error", err)
		time.Sleep(time.Second) // nobody says when a disk has space
	}
}

// swap tries once to store what has become of a set, and returns what it was. Of an answer that is errUseless it stores
// the refresh token, if there is one.
func (t *tokens) swap(key, base string, answer oauth.Answer, asked time.Time) (old, set oauth.Set, err error) {
	t.storing.Lock()
	defer t.storing.Unlock()
	old, text, ok, err := t.vault.Tokens(key)
	if err != nil && !errors.Is(err, vault.ErrNotFound) { // what came of the refresh is not lost for that
		return old, old, err
	}
	if !ok || units.Digest(text) != base {
		return old, old, errOutdated
	}
	set, useless := old.Refreshed(answer, asked)
	if useless != nil {
		useless = fmt.Errorf("%w: %w", errUseless, useless)
		if set.RefreshToken == old.RefreshToken {
			return old, old, useless
		}
	}
	t.users.tokenKnown(key, vault.ValuesOf(set))
	if err := t.vault.PutTokens(key, set); err != nil {
		return old, set, err
	}
	if useless != nil {
		t.log.Warn("vault", "operation", "refresh", "key", key, "outcome", "a new refresh token, and no access token")
	}
	return old, set, useless
}

// fail notes why a set was not refreshed, and when it is tried again, if ever.
func (t *tokens) fail(key string, r attach.Refreshed) {
	t.mu.Lock()
	k := t.of[key]
	if k == nil || !k.set {
		t.mu.Unlock()
		return
	}
	r.After, r.Error = min(max(r.After, 0), lastAfter), printable(r.Error)
	k.final = r.Final
	if r.Final {
		k.next, k.problem = time.Time{}, remedy(key, t.signIns.renewal(key), r)
	} else {
		k.pause = min(max(2*k.pause, firstRetry), lastRetry)
		k.within = max(k.pause, r.After) + time.Duration(t.jitter()*float64(k.pause/10))
		k.next = t.wall.now().Add(k.within)
		k.problem = fmt.Sprintf("refreshing the OAuth token %q failed: %s; again at %s", key, r.Error, until(k.next))
	}
	words, next := k.problem, k.next
	t.mu.Unlock()
	if r.Final {
		t.log.Error("vault", "operation", "refresh", "key", key, "outcome", "refused", "error", words)
		t.users.tokenRefused(key, words)
	} else {
		t.log.Warn("vault", "operation", "refresh", "key", key, "outcome", "failed", "error", r.Error, "again", until(next))
	}
	t.users.tokensTurned()
	t.due()
}

// lastAfter is the longest time until the next try that a refresh process may say, which may have been taken over.
const lastAfter = 24 * time.Hour

// remedy says what is to be done about a refusal, with that which stores another set.
func remedy(key string, renewal units.Remedy, r attach.Refreshed) string {
	command, login := renewal.Command, renewal.Act == units.SignIn
	switch {
	case r.Code == "invalid_grant" && login:
		return fmt.Sprintf("the refresh token of %q was refused (%s): needs login: %s", key, r.Code, command)
	case r.Code == "invalid_grant":
		return fmt.Sprintf("the refresh token of %q was refused (%s): obtain a new one and store it with %s", key, r.Code,
			command)
	case r.Code == oauth.CodeClient, r.Code == "unauthorized_client":
		where := "store it with"
		if login {
			where = "run"
		}
		return fmt.Sprintf("the client of the OAuth token %q was refused (%s): correct client_id, client_secret or "+
			"auth_style and %s %s", key, r.Code, where, command)
	case login:
		return fmt.Sprintf("the OAuth token %q cannot be refreshed: %s; needs login: %s", key, r.Error, command)
	}
	return fmt.Sprintf("the OAuth token %q cannot be refreshed: %s; correct it and store it with %s", key, r.Error,
		command)
}

// until is a point in time in words, which is always the same one.
func until(at time.Time) string {
	if at.IsZero() {
		return "unknown"
	}
	return at.UTC().Format("2006-01-02 15:04:05 UTC")
}

// problem says what is wrong with the set of a key that servers use, "" if nothing is, and whether nobody tries again.
func (t *tokens) problem(key string) (words string, final bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.of[key]; k != nil {
		return k.problem, k.final
	}
	return "", false
}

// spent reports whether what the vault has under a key is of no use any more, and only a person can replace it.
func (t *tokens) spent(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of[key]
	switch {
	case k == nil:
		return false
	case k.unwanted:
		return true
	}
	return k.set && (k.fixed || k.final) && (oauth.Set{Expiry: k.expiry}).Expired(t.wall.now())
}

// uses reports whether servers use a key that may run.
func (t *tokens) uses(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[key] != nil
}

// awaits says for what a server is to wait that is about to be given the value of a key; in no words: it may have it.
func (t *tokens) awaits(key string) missing {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of[key]
	now := t.wall.now()
	if k == nil || !k.set || !(oauth.Set{Expiry: k.expiry}).Expired(now) {
		return missing{}
	}
	command := t.signIns.renewal(key)
	if k.fixed {
		format := "the OAuth token %q has expired, and it has no refresh_token: store another one with %s"
		if command.Act == units.SignIn {
			format = "the OAuth token %q has expired, and it has no refresh_token: needs login: %s"
		}
		return missing{fmt.Sprintf(format, key, command.Command), command}
	}
	if k.final {
		return missing{k.problem, command}
	}
	if k.awaited.IsZero() {
		k.awaited = now
		time.AfterFunc(patience, t.users.tokensTurned)
	}
	if waited := now.Sub(k.awaited); waited >= patience || waited < 0 {
		return missing{}
	}
	return missing{words: cmp.Or(k.problem, fmt.Sprintf("the OAuth token %q has expired and is being refreshed", key))}
}
