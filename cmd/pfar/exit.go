package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	failures "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/control"
)

// Exit codes. They are an interface: scripts depend on them, and exitCodesHelp documents them.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitToolError  = 3
	exitNoSuch     = 4
	exitNotRunning = 5
	exitDenied     = 6

	// What a call of a tool failed by (failure.Class); not_found is exitNoSuch.
	exitRateLimited  = 10
	exitUnauthorized = 11
	exitForbidden    = 12
	exitTimeout      = 13
	exitServerError  = 14
	exitNetwork      = 15
	exitTLS          = 16
	exitSchema       = 17
	exitDied         = 18

	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes of pfar, the same for every verb:

    0  done
    1  a mistake was found, or the operation failed
    2  wrong usage: unknown verb or flag, missing or malformed argument
    3  the tool ran and returned an error (isError in MCP)
    4  no such server, client, tool, vault key, log, approval or session, or nothing by that name at the server
    5  pfar is not running
    6  permission denied
   10  rate_limited: the service limits calls; the hint says when to try again
   11  unauthorized: the service does not accept the server's credentials
   12  forbidden: the credentials lack a right for the call
   13  timeout: no answer came in time
   14  server_error: the server reports an error of its own
   15  network_error: the server did not reach its service
   16  tls: the server's host does not prove its identity
   17  schema: the answer violates the protocol or the tool's schema
   18  died: the server ended, or does not run
  130  interrupted by Ctrl-C or SIGTERM

"pfar up" ends with the exit code of pfard.`

// failure is an error that knows its exit code and, if there is one, the way out.
type failure struct {
	code int
	err  error
	hint string
	of   failures.Failure // of a call; the zero value: of anything else
}

// exitOf is the exit code of a call that failed.
func exitOf(c failures.Class) int {
	switch c {
	case failures.RateLimited:
		return exitRateLimited
	case failures.Unauthorized:
		return exitUnauthorized
	case failures.Forbidden:
		return exitForbidden
	case failures.NotFound:
		return exitNoSuch
	case failures.Timeout:
		return exitTimeout
	case failures.ServerError:
		return exitServerError
	case failures.NetworkError:
		return exitNetwork
	case failures.TLS:
		return exitTLS
	case failures.Schema:
		return exitSchema
	case failures.Died:
		return exitDied
	}
	return exitFailed
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(code int, format string, args ...any) *failure {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) *failure { return fail(exitUsage, format, args...) }

func (f *failure) withHint(format string, args ...any) *failure {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

// classify finds the exit code of an error and a hint for those that have a known remedy.
func classify(err error) (int, string) {
	var f *failure
	var pathErr *fs.PathError
	switch {
	case err == nil:
		return exitOK, ""
	case errors.As(err, &f):
		return f.code, f.hint
	case errors.Is(err, control.ErrNotRunning):
		return exitNotRunning, `start it with "pfar up", or set PFAR_RUN_DIR to where it runs`
	case errors.Is(err, control.ErrDenied):
		return exitDenied, "run pfar as the user that started it, or as root"
	case errors.As(err, &pathErr) && errors.Is(err, fs.ErrPermission):
		return exitDenied, ""
	case errors.Is(err, control.ErrNoServer):
		return exitNoSuch, `"pfar status" lists the servers`
	case errors.Is(err, control.ErrNoKey):
		return exitNoSuch, `"pfar vault list" lists the keys`
	case errors.Is(err, control.ErrExists):
		return exitFailed, "--replace gives them the values that are imported"
	case errors.Is(err, control.ErrInvalid):
		return exitUsage, ""
	case errors.Is(err, context.Canceled):
		return exitInterrupted, ""
	}
	return exitFailed, ""
}

// silent carries an exit code whose reason is already on the screen.
type silent struct{}

func (*silent) Error() string { return "already reported" }

func exitWith(code int) error { return &failure{code: code, err: &silent{}} }
