package clients

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/pfar/pfar/units/control"
)

// Peers is a Unix listener that lets in root, the given users and those who are declared clients, as the kernel knows
// them.
type Peers struct {
	*net.UnixListener
	UIDs     []uint32
	Declared func(uid uint32) bool // nil: nobody is
	Log      *slog.Logger
}

// Declared reports whether a user is a declared client, or may be one: as long as nobody has said who is declared, a
// connection is kept, and its requests wait.
func (c *Clients) Declared(uid uint32) bool {
	t := c.Table()
	return t == nil || t.uids[uid] != nil
}

// Accept returns the next connection that may be served.
func (p Peers) Accept() (net.Conn, error) {
	for {
		c, err := p.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := control.PeerOf(c)
		uid := uint32(peer.UID)
		if err == nil && (uid == 0 || slices.Contains(p.UIDs, uid) || p.Declared != nil && p.Declared(uid)) {
			return c, nil
		}
		if err == nil {
			err = fmt.Errorf("uid %d is not served", uid)
		}
		p.Log.Warn("refusing a client", "error", err.Error())
		c.Close()
	}
}

type peerKey struct{}

// peerOf returns the user at the other end of a request's Unix socket, and false if there is none that is known.
func peerOf(ctx context.Context) (uid uint32, ok bool) {
	uid, ok = ctx.Value(peerKey{}).(uint32)
	return uid, ok
}

// WithPeer notes in a connection's context which user is at its other end.
func WithPeer(ctx context.Context, c net.Conn) context.Context {
	if w, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = w.NetConn()
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	peer, err := control.PeerOf(u)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uint32(peer.UID))
}
