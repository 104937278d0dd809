package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/pfar/pfar/policies/audit/prose"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator/ask"
)

// verifyTime is how long a page waits for pfard, which takes less, and maxVerified bounds what pfard hands over, in
// bytes.
const (
	verifyTime  = 11 * time.Minute
	maxVerified = 4 << 20
)

var errVerifying error = &ask.Refusal{Reason: "another page has the audit verified; try again when that has ended"}

// unverified is the error of an audit that could not be verified.
func unverified(why string) error {
	return &ask.Refusal{Reason: "the audit could not be verified here: " + visible.Reveal(why)}
}

// verify returns what a verification finds. It ends when ctx does: pfard then stops it.
func (a *archive) verify(ctx context.Context) (list []prose.Verified, err error) {
	select {
	case a.verifying.turn <- struct{}{}:
		defer func() { <-a.verifying.turn }()
	default:
		return nil, errVerifying
	}
	ctx, cancel := context.WithTimeoutCause(ctx, verifyTime, errors.New("the check took too long"))
	defer cancel()
	send := func(number uint64) error {
		q := attach.Question{Number: number}
		return a.asksView(attach.View{Question: q, What: attach.ViewVerify})
	}
	gone := func(number uint64) {
		_ = a.verifying.drops(attach.Question{Number: number}) // if pfard has gone, so has the verification
	}
	got, err := a.ask(ctx, send, gone)
	defer attach.CloseAll(got.files)
	switch {
	case errors.Is(err, errBusy):
		return nil, errVerifying
	case err != nil && ctx.Err() != nil:
		return nil, unverified(context.Cause(ctx).Error())
	case err != nil:
		return nil, unverified("pfard does not answer")
	case got.Error != "":
		return nil, unverified(got.Error)
	case len(got.files) != 1:
		return nil, unverified("pfard sent no result")
	}
	return verifiedIn(got.files[0])
}

// verifiedIn decodes what pfar audit verify printed.
func verifiedIn(f *os.File) (list []prose.Verified, err error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxVerified))
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, unverified("the result cannot be read; run pfar audit verify")
	}
	return list, nil
}

// verified are what a verification found.
type verified struct {
	At     string
	Broken string // that records were changed; "": none was found
	Chains []verifiedChain
	Note   string // why the chains were compared with nothing
}

// verifiedChain is what a verification found about one chain.
type verifiedChain struct {
	Word, Head string
	Bad        bool
	Lines      []string
}

// verifiedOf puts a verification into the words of pfar audit verify.
func verifiedOf(list []prose.Verified, at time.Time) verified {
	f := verified{At: moment(at), Note: visible.Reveal(prose.Uncompared(list))}
	for _, v := range list {
		c := verifiedChain{Word: v.Word(), Head: visible.Reveal(v.Head()), Bad: v.Broken()}
		for _, l := range v.Lines() {
			c.Lines = append(c.Lines, visible.Reveal(l))
		}
		if c.Bad {
			f.Broken = prose.Changed
		}
		f.Chains = append(f.Chains, c)
	}
	return f
}

// verifyAudit answers a request for the page of a verification, which takes as long as pfard takes. If the browser
// hangs up, the verification ends.
func verifyAudit(s *site, w http.ResponseWriter, r *http.Request, one *session) {
	c := http.NewResponseController(w) // setting deadlines never fails on a socket
	_ = c.SetReadDeadline(time.Time{}) // else the request's context would end with it
	_ = c.SetWriteDeadline(time.Time{})
	make := func(ctx context.Context, _ *session) (content, error) {
		list, err := s.archive.verify(ctx)
		_ = c.SetWriteDeadline(time.Now().Add(loopback.WriteTime))
		if err != nil {
			return content{}, err
		}
		page := content{title: "Audit, verified", template: "verified", body: verifiedOf(list, s.now()), quiet: true}
		return page, nil
	}
	s.show(w, r, one, verifyPath, make)
}
