package units

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// brokenListener answers Accept with errs, one after the other, and then with a connection.
type brokenListener struct {
	net.Listener
	errs []error
}

func (b *brokenListener) Accept() (net.Conn, error) {
	if len(b.errs) == 0 {
		return &net.UnixConn{}, nil
	}
	err := b.errs[0]
	b.errs = b.errs[1:]
	return nil, err
}

// What one user's programs can take from another program of that user ends no listener of pfar's.
func TestAcceptOutlastsExhaustion(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.ECONNABORTED} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failure := &net.OpError{Op: "accept", Err: os.NewSyscallError("epoll_ctl", errno)}
				warned := 0
				l := PatientListener{&brokenListener{errs: []error{failure, failure, failure}}, func(error) { warned++ }}
				if _, err := l.Accept(); err != nil || warned != 1 {
					t.Errorf("got %v after %d warnings, want a connection after one", err, warned)
				}
			})
		})
	}
}

func TestAcceptEnds(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx context.Context
		err error
	}{
		"closed":   {t.Context(), fmt.Errorf("accept: %w", net.ErrClosed)},
		"deadline": {t.Context(), fmt.Errorf("accept: %w", os.ErrDeadlineExceeded)},
		"context":  {ended, unix.ENOSPC},
	} {
		t.Run(name, func(t *testing.T) {
			l := &brokenListener{errs: []error{c.err}}
			_, err := Accept(c.ctx, l.Accept, func(err error) { t.Errorf("warned of %v", err) })
			if !errors.Is(err, c.err) {
				t.Errorf("got %v, want %v", err, c.err)
			}
		})
	}
}
