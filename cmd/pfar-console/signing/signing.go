// Package signing has an operator at another machine sign each act with a passkey, before the gateway or pfard carries
// it out.
package signing

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/webauthn"
	"github.com/pfar/pfar/units/operator/ask"
)

// Form is a form on its way to whoever carries it out. The passkey signs the act that the form leads to, whole; so the
// form is taken twice: once to find that act, and once with the signature.
type Form struct {
	Proof *passkey.Proof // nil: the act is to be found
	act   *passkey.Act   // without a nonce, if it was found
	gives Giver          // of nonces for act
}

// Giver asks for a nonce for an operator's act. The gateway and pfard have one each.
type Giver func(ctx context.Context, operator string) (nonce string, err error)

// ErrUnsigned is the error of a request without a signature.
var ErrUnsigned = &ask.Refusal{
	Reason: "your browser did not sign it with your passkey: allow JavaScript for this page, and try again",
}

type formKey struct{}

// With returns a request whose own requests to the gateway and pfard go through the form.
func (f *Form) With(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), formKey{}, f))
}

// Of returns the form from which an act comes; nil: nobody has to sign it.
func Of(ctx context.Context) *Form {
	f, _ := ctx.Value(formKey{}).(*Form)
	return f
}

// Prove returns the proof for an act, or notes what is to be signed and who gives a nonce for it.
func (f *Form) Prove(act passkey.Act, gives Giver) (*passkey.Proof, error) {
	if f.Proof == nil {
		f.act, f.gives = &act, gives
		return nil, ErrUnsigned
	}
	return f.Proof, nil
}

// Send sends the gateway the signed request, or notes what is to be signed.
func (f *Form) Send(ctx context.Context, gateway *http.Client, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	signed, err := f.Prove(passkey.Act{Method: method, Target: path, Body: text}, ofGateway(gateway))
	if err != nil {
		return err
	}
	proof, err := json.Marshal(signed)
	if err != nil {
		return err
	}
	stream, err := ask.Send(ctx, gateway, method, path, text, base64.RawURLEncoding.EncodeToString(proof))
	if err != nil {
		return err
	}
	defer stream.Close()
	return ask.Decode(stream, answer)
}

// ofGateway asks the gateway for nonces.
func ofGateway(gateway *http.Client) Giver {
	return func(ctx context.Context, operator string) (string, error) {
		ctx, cancel := ask.Within(ctx)
		defer cancel()
		path := "/challenge?operator=" + url.QueryEscape(operator)
		stream, err := ask.Send(ctx, gateway, http.MethodPost, path, nil, "")
		if err != nil {
			return "", err
		}
		defer stream.Close()
		var given struct {
			Nonce string `json:"nonce"`
		}
		err = ask.Decode(stream, &given)
		return given.Nonce, err
	}
}

// Asked is what the script of a page has the passkey sign, in JSON.
type Asked struct {
	Nonce   string          `json:"nonce"`
	Options *webauthn.Asked `json:"options,omitempty"` // nil: there is nothing to sign, and the next page says why
}

// Ask asks whoever carries out the act for a nonce for an operator, and makes the challenge of the act with it.
func (f *Form) Ask(ctx context.Context, operator, origin string, keys []passkey.Key) (a Asked, err error) {
	if f.act == nil {
		return a, nil
	}
	if f.act.Nonce, err = f.gives(ctx, operator); err != nil {
		return a, err
	}
	return Asked{f.act.Nonce, webauthn.Ask(origin, f.act.Challenge(), keys)}, nil
}
