package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
)

// Exit is the status of a server that has ended by itself, as a shell has it.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("the server has ended with status %d", int(e)) }

// child is a server's program, which this process has started.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

// start starts a server. What it writes, on stdout as well, is for its log.
func (a Adapter) start(command []string) (*child, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = a.Log, a.Log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	c := &child{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState has all of it
		close(c.ended)
	}()
	return c, nil
}

// exit is the status of one that has ended.
func (c *child) exit() Exit {
	w, _ := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if w.Signaled() {
		return Exit(128 + int(w.Signal()))
	}
	return Exit(w.ExitStatus())
}

// ends reports whether it has ended, or does so before late. Its connections break a little earlier.
func (c *child) ends(ctx context.Context, late <-chan time.Time) bool {
	select {
	case <-c.ended:
	case <-ctx.Done(): // it may have ended because of that
	case <-late:
	}
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// end stops it. What it has started itself ends with this process, whose sandbox that is.
func (c *child) end(grace <-chan time.Time) {
	_ = c.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-c.ended:
		return
	case <-grace:
	}
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// speech speaks with a server until ctx ends. After a connection breaks, ended waits until it is clear why, and reports
// whether the server's program has ended. It is nil if pfar has not started the server.
type speech func(ctx context.Context, ended func() bool) error

// with speaks with a server that it starts first, if there is a command. The server ends with the conversation, and the
// conversation with the server, whose status is then the error.
func (a Adapter) with(ctx context.Context, command []string, speak speech) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if command == nil {
		return a.until(ctx, cancel, func(ctx context.Context) error { return speak(ctx, nil) })
	}
	c, err := a.start(command)
	if err != nil {
		return err
	}
	go func() {
		<-c.ended
		cancel(fault.New(fault.NetworkError, "%v", c.exit()))
	}()
	ended := func() bool { return c.ends(ctx, a.After(a.Limits.Dying)) }
	err = a.until(ctx, cancel, func(ctx context.Context) error { return speak(ctx, ended) })
	if err != nil && ended() {
		return c.exit()
	}
	select {
	case <-c.ended:
		return c.exit()
	default:
	}
	c.end(a.After(a.Limits.Grace))
	return err
}

// until speaks until the gateway closes standard input, even if the server does not listen yet.
func (a Adapter) until(ctx context.Context, cancel context.CancelCauseFunc, speak func(context.Context) error) error {
	go func() {
		select {
		case <-hungUp(a.In):
		case <-ctx.Done():
			return
		}
		select { // requests in flight may end
		case <-ctx.Done():
		case <-a.After(a.Limits.Grace):
			cancel(errGateway)
		}
	}()
	err := speak(ctx)
	if errors.Is(context.Cause(ctx), errGateway) {
		return nil
	}
	return err
}
