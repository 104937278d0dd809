package main

import (
	"context"
	"net/http"
	"time"

	"github.com/pfar/pfar/cmd/pfar-console/entrance"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/attach"
)

// newRemoteSite makes the pages for operators at other machines.
func newRemoteSite(gateway *http.Client, now func() time.Time) *site {
	s := newSite(0, gateway, now)
	s.entrance = entrance.New(host{s}, now, style)
	s.has, s.most = s.entrance.Has, most{sessions: 64, streams: 48}
	return s
}

// host is the entrance.Host of a site.
type host struct{ *site }

func (h host) Known() *attach.Known { return h.known.Load() }

func (h host) SignIn(w http.ResponseWriter, r *http.Request, operator string, key []byte, call string) {
	signIn(h.site, w, r, operator, key, call)
}

// Enroll has pfard store a passkey.
func (h host) Enroll(ctx context.Context, nonce string, k *passkey.Key) error {
	_, err := h.orders.send(ctx, attach.Order{Act: attach.OrderEnroll, Nonce: nonce, Key: k})
	return err
}
