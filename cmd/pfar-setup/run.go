package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/page"
)

// What others may cost this process. A browser opens a few connections, some of which it never uses.
const (
	maxConns   = 16
	maxHeader  = 8 << 10 // bytes
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	writeTime  = 10 * time.Second
	attachWait = time.Minute      // for pfard, which may be starting
	lastLook   = 30 * time.Second // for a browser to fetch what came of the set-up
	most       = 2 * time.Hour    // for a set-up: pfard ends it before
)

// run serves the page that pfard hands over, until its set-up has ended. The task is in no argument, no variable and no
// file, and no error quotes it.
func run(ctx context.Context, path string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pfard, task, err := join(ctx, path)
	if err != nil {
		return err
	}
	defer pfard.Close()
	defer context.AfterFunc(ctx, func() { pfard.Close() })()
	l, err := listen(task.Port)
	if err != nil {
		return errors.Join(
			err,
			pfard.Send(attach.Message{PageTalk: attach.PageTalk{Listens: &attach.Listens{Error: err.Error()}}}),
		)
	}
	port := l.Addr().(*net.TCPAddr).Port
	s := newSite(task, port, func(a attach.Acted, value []byte) error { return deliver(pfard, a, value) })
	h := server(s)
	defer h.Close()
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(netutil.LimitListener(l, maxConns)) }()
	listens := attach.PageTalk{Listens: &attach.Listens{Port: uint16(port)}}
	if err := pfard.Send(attach.Message{PageTalk: listens}); err != nil {
		return fmt.Errorf("telling pfard where the page is: %w", err)
	}
	over := make(chan bool, 1)
	go func() { over <- follow(pfard, s) }()
	ended := time.NewTimer(most)
	defer ended.Stop()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the page: %w", err)
	case <-ended.C:
		return nil
	case <-ctx.Done():
		return nil
	case told := <-over:
		if !told && task.Port != 0 {
			return nil // the next pfard has its pages here
		}
	}
	select { // what came of it is to be seen
	case <-s.shown:
	case <-time.After(lastLook):
	case <-ctx.Done():
	}
	end, done := context.WithTimeout(ctx, writeTime)
	defer done()
	return h.Shutdown(end)
}

// server is what answers for a page.
func server(h http.Handler) *http.Server {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: headerTime,
		MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ErrorLog: log.New(io.Discard, "", 0), // it would quote what strangers send
	}
	s.SetKeepAlivesEnabled(false) // whoever has been answered makes room
	return s
}

// errTaken is the error of a port that cannot be had.
var errTaken = errors.New("another program has the port")

// listen listens on loopback alone, of IPv4, whose address the link has: on a port, or with 0 on any of those for pages
// that is free.
func listen(port uint16) (*net.TCPListener, error) {
	if port != 0 {
		return listenOn(port)
	}
	for _, n := range rand.Perm(egress.LastPagePort - egress.FirstPagePort + 1) {
		l, err := listenOn(egress.FirstPagePort + uint16(n))
		if !errors.Is(err, errTaken) {
			return l, err
		}
	}
	return nil, fmt.Errorf("no port of 127.0.0.1 from %d to %d is free", egress.FirstPagePort, egress.LastPagePort)
}

func listenOn(port uint16) (*net.TCPListener, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	if errors.Is(err, unix.EADDRINUSE) {
		err = errTaken
	}
	if err != nil {
		return nil, fmt.Errorf("listening on 127.0.0.1:%d: %w", port, err)
	}
	return l, nil
}

// join says to pfard what this process is, and returns the task that it hands over: over its socket at path, or without
// one over the connection that was passed.
func join(ctx context.Context, path string) (c *attach.Conn, t page.Task, err error) {
	var files []*os.File
	hello := attach.Hello{Page: true}
	if path != "" {
		ctx, cancel := context.WithTimeout(ctx, attachWait)
		defer cancel()
		c, _, files, err = attach.Connect(ctx, path, hello)
	} else {
		c, files, err = passed(hello)
	}
	if err != nil {
		return nil, t, err
	}
	defer attach.CloseAll(files)
	if len(files) != 1 {
		err = fmt.Errorf("%d files came, want one", len(files))
	}
	var b []byte
	if err == nil {
		b, err = units.ReadSealed(files[0], page.MaxTask)
	}
	if err == nil && json.Unmarshal(b, &t) != nil {
		err = errors.New("it is not JSON")
	}
	if err == nil {
		t = t.Clean()
		err = t.Check()
	}
	if err != nil {
		c.Close()
		return nil, t, fmt.Errorf("taking over the page: %w", err)
	}
	return c, t, nil
}

// passed begins over the connection that a local pfard has passed to this process.
func passed(hello attach.Hello) (*attach.Conn, []*os.File, error) {
	all, err := units.Descriptors()
	if err != nil {
		return nil, nil, err
	}
	if len(all[units.FDPage]) != 1 {
		return nil, nil, fmt.Errorf(
			"taking over the connection to pfard: got %d named %q, want one",
			len(all[units.FDPage]),
			units.FDPage,
		)
	}
	c, err := attach.FromFile(all[units.FDPage][0])
	if err != nil {
		return nil, nil, err
	}
	if err := c.Send(attach.Message{Hello: &hello}); err != nil {
		return nil, nil, err
	}
	m, files, err := c.Receive()
	if err == nil && m.Welcome == nil {
		attach.CloseAll(files)
		err = errors.New("pfard's first message is no welcome")
	}
	return c, files, err
}

// deliver hands what a person has done to pfard. A value goes in a file that nobody can change.
func deliver(pfard *attach.Conn, a attach.Acted, value []byte) error {
	m := attach.Message{PageTalk: attach.PageTalk{Acted: &a}}
	if value == nil {
		return pfard.Send(m)
	}
	f, err := units.Sealed("value", value)
	if err != nil {
		return err
	}
	defer f.Close()
	return pfard.Send(m, f)
}

// follow shows what pfard says of the set-up, and reports whether that is how it has ended. A pfard that hangs up
// before has been stopped: it may have stored the value, and the next one knows.
func follow(pfard *attach.Conn, s *site) (told bool) {
	for !s.finished() {
		m, files, err := pfard.Receive()
		if err != nil {
			const words = "pfar was stopped. When it runs again, the set-up goes on with a new link."
			s.becomes(page.State{Phase: page.Failed, Words: words})
			return false
		}
		attach.CloseAll(files)
		if m.Shown != nil {
			s.becomes(m.Shown.Clean())
		}
	}
	return true
}
