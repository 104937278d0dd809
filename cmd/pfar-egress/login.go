package main

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	sdjournal "github.com/pfar/pfar/units/journal"
)

// loginTime is from start to end; that of the unit is more.
const loginTime = oauth.LoginTime + 30*time.Second

// login obtains the token set of the task that pfard hands over, or asks the question, gives pfard what came of it, and
// ends. It ends as well when stop does, or pfard: then nobody waits for the token, and no code is asked for any more.
// The task is in no argument, no variable and no file, and no error quotes it.
func login(stop context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(stop, loginTime, fmt.Errorf("the sign-in took more than %s", loginTime))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	log := slog.New(sdjournal.New(os.Stderr))
	pfard, text, err := join(ctx, stop, attach.Hello{Login: true}, path, log, fail)
	if stop.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	out, err := pfard.dialer()
	if err != nil {
		return err
	}
	if q, ok := oauth.DecodeQuestion(text); ok {
		return pfard.inquire(ctx, q, text, out)
	}
	task, err := oauth.DecodeTask(text)
	if err != nil {
		return fmt.Errorf("reading the login: %w", err)
	}
	p, err := newGrantor(task, out, poolOf(task.CA))
	if err != nil {
		return err
	}
	p.show = pfard.show
	answer, asked, failed := p.obtain(ctx)
	if ctx.Err() != nil {
		return nil // nobody waits for it
	}
	result := attach.Refreshed{Base: units.Digest(text), Asked: asked}
	if failed != nil {
		result.Error, result.Code, result.Final = printable(failed.Error()), oauth.Ended(failed), true
	}
	return pfard.report(ctx, result, answer)
}

// show has pfard tell whoever waits for the login what to do.
func (a *attachment) show(p attach.Progress) error {
	a.mu.Lock()
	c := a.conn
	a.mu.Unlock()
	if c == nil {
		return errPfardAway
	}
	return c.Send(attach.Message{Errand: attach.Errand{Progress: &p}})
}

// grantor is where a login gets its token. Each of its clients reaches the host of one endpoint.
type grantor struct {
	task          oauth.Task
	device, token *http.Client
	show          func(attach.Progress) error
	wait          func(ctx context.Context, pause time.Duration) error
}

func newGrantor(task oauth.Task, out dialer, roots *x509.CertPool) (*grantor, error) {
	p := &grantor{task: task, wait: pause}
	host, port, policy, err := task.TokenHost()
	if err != nil {
		return nil, err
	}
	client := func() *http.Client { return clientOf(onlyTo(host, port, policy, out, roots, "provider")) }
	p.token = client()
	if task.Way == oauth.ByDevice {
		if host, port, policy, err = task.DeviceHost(); err != nil {
			return nil, err
		}
		p.device = client()
	}
	return p, nil
}

// clientOf makes one request a connection. It follows no redirect: the place that one leads to would get what is meant
// for this one.
func clientOf(t *http.Transport) *http.Client {
	t.DisableKeepAlives = true
	return &http.Client{Transport: t, Timeout: answerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// pause waits so long, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// obtain asks for a token, and says when: its end counts from there.
func (p *grantor) obtain(ctx context.Context) (oauth.Answer, time.Time, error) {
	if p.task.Way == oauth.ByDevice {
		return p.byDevice(ctx)
	}
	return p.byCode(ctx)
}

// byDevice shows a code that the person enters elsewhere, and asks until that is done.
func (p *grantor) byDevice(ctx context.Context) (oauth.Answer, time.Time, error) {
	r, err := p.post(ctx, p.device, p.task.Endpoint, map[string]string{"scope": strings.Join(p.task.Scopes, " ")})
	var g oauth.DeviceGrant
	if err == nil {
		g, err = p.task.Device(r)
	}
	if err != nil {
		return oauth.Answer{}, time.Time{}, fmt.Errorf("asking for a code: %w", err)
	}
	if err := p.show(attach.Progress{URL: g.URL, Complete: g.Complete, Code: g.UserCode, Life: g.Life}); err != nil {
		return oauth.Answer{}, time.Time{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.Life, oauth.Refused{Code: oauth.CodeExpired})
	defer cancel()
	for polling := (oauth.Polling{Interval: g.Interval}); ; {
		if err := p.wait(ctx, polling.Interval); err != nil {
			return oauth.Answer{}, time.Time{}, err
		}
		asked := time.Now().UTC()
		answer, err := p.exchange(ctx, map[string]string{
			"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": g.DeviceCode,
		}, g.DeviceCode)
		if err == nil {
			return answer, asked, nil
		}
		if ctx.Err() != nil {
			return oauth.Answer{}, time.Time{}, context.Cause(ctx)
		}
		var again bool
		if polling, again = polling.After(err); !again {
			return oauth.Answer{}, time.Time{}, err
		}
	}
}

// byCode has the person come back with a code from the provider's page, and asks for the token of that code.
func (p *grantor) byCode(ctx context.Context) (oauth.Answer, time.Time, error) {
	none := oauth.Answer{}
	verifier, state := nonce(), nonce()
	r, err := awaitBrowser(p.task, state)
	if err != nil {
		return none, time.Time{}, err
	}
	defer r.close()
	address, err := p.task.Authorization(r.redirect(), state, oauth.Challenge(verifier))
	if err != nil {
		return none, time.Time{}, err
	}
	if err := p.show(attach.Progress{URL: address, Port: r.port, Life: oauth.LoginTime}); err != nil {
		return none, time.Time{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, oauth.LoginTime, oauth.ErrLate)
	defer cancel()
	var came oauth.Judgement
	select {
	case came = <-r.came:
	case <-ctx.Done():
		return none, time.Time{}, context.Cause(ctx)
	}
	if came.End != nil {
		return none, time.Time{}, came.End
	}
	asked := time.Now().UTC()
	answer, err := p.exchange(ctx, map[string]string{
		"grant_type": "authorization_code", "code": came.Code, "redirect_uri": r.redirect(), "code_verifier": verifier,
	}, came.Code, verifier)
	if err != nil {
		return none, time.Time{}, fmt.Errorf("asking for the token: %w", err)
	}
	return answer, asked, nil
}

// exchange asks the token endpoint. Sent are the secrets among the values.
func (p *grantor) exchange(ctx context.Context, values map[string]string, sent ...string) (oauth.Answer, error) {
	r, err := p.post(ctx, p.token, p.task.TokenURL, values)
	if err != nil {
		return oauth.Answer{}, err
	}
	return p.task.Tokens(r, sent...)
}

// post sends a form, and reads the whole answer. No error quotes either.
func (p *grantor) post(
	ctx context.Context, client *http.Client, address string, values map[string]string,
) (oauth.Response, error) {
	form, basic := p.task.Form(values)
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return oauth.Response{}, errors.New("the endpoint's address cannot be asked")
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Accept", "application/json")
	if basic != nil {
		q.SetBasicAuth(basic[0], basic[1])
	}
	r, err := client.Do(q)
	if err != nil {
		return oauth.Response{}, oauth.Silent{Reason: fmt.Errorf("%s cannot be asked: %w", q.URL.Host, unquoted(err))}
	}
	return wholeAnswer(r, q.URL.Host)
}

// wholeAnswer reads an answer to its end.
func wholeAnswer(r *http.Response, host string) (oauth.Response, error) {
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	switch {
	case err != nil:
		return oauth.Response{}, oauth.Silent{Reason: fmt.Errorf("reading the answer of %s: %w", host, unquoted(err))}
	case len(body) > maxAnswer:
		return oauth.Response{}, fmt.Errorf("the answer of %s has more than %d bytes", host, maxAnswer)
	}
	return oauth.Response{Status: r.StatusCode, Type: r.Header.Get("Content-Type"), Body: body}, nil
}

// nonce is a secret that nobody guesses (RFC 7636 section 4.1).
func nonce() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
