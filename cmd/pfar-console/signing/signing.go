// Package signing has an operator at another machine sign each act with a passkey, before the gateway carries it out.
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

// Form is a form on its way to the gateway. The passkey signs the request that the form leads to, whole; so the form is
// taken twice: once to find that request, and once with the signature.
type Form struct {
	Proof *passkey.Proof // nil: the request is to be found
	Act   *passkey.Act   // the request, without a nonce, if it was found
}

// ErrUnsigned is the error of a request without a signature.
var ErrUnsigned = &ask.Refusal{
	Reason: "your browser did not sign it with your passkey: allow JavaScript for this page, and try again",
}

type formKey struct{}

// With has what comes of a request sent to the gateway by the form.
func (f *Form) With(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), formKey{}, f))
}

// Of returns the form that a request to the gateway comes of; nil: nobody has to sign it.
func Of(ctx context.Context) *Form {
	f, _ := ctx.Value(formKey{}).(*Form)
	return f
}

// Send sends the signed request, or notes what is to be signed.
func (f *Form) Send(ctx context.Context, gateway *http.Client, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if f.Proof == nil {
		f.Act = &passkey.Act{Method: method, Target: path, Body: text}
		return ErrUnsigned
	}
	proof, err := json.Marshal(f.Proof)
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

// Asked is what the script of a page has the passkey sign, in JSON.
type Asked struct {
	Nonce   string          `json:"nonce"`
	Options *webauthn.Asked `json:"options,omitempty"` // nil: there is nothing to sign, and the next page says why
}

// Ask asks the gateway for a nonce for an operator, and makes the challenge of the act with it.
func (f *Form) Ask(
	ctx context.Context, gateway *http.Client, operator, origin string, keys []passkey.Key,
) (a Asked, err error) {
	if f.Act == nil {
		return a, nil
	}
	ctx, cancel := ask.Within(ctx)
	defer cancel()
	stream, err := ask.Send(ctx, gateway, http.MethodPost, "/challenge?operator="+url.QueryEscape(operator), nil, "")
	if err != nil {
		return a, err
	}
	defer stream.Close()
	if err := ask.Decode(stream, &a); err != nil {
		return Asked{}, err
	}
	f.Act.Nonce = a.Nonce
	a.Options = webauthn.Ask(origin, f.Act.Challenge(), keys)
	return a, nil
}
