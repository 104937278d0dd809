// Command pfar-sandbox launches one MCP server inside bubblewrap, hands its stdio to the gateway, and ends when it
// ends.
//
// It is run as a unit: its plan and the server's credentials come by $CREDENTIALS_DIRECTORY, descriptors by LISTEN_FDS,
// news goes out by NOTIFY_SOCKET, and its exit code tells the runner whether to start it again (package units).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/question"
)

func main() {
	// The kernel sends PDEATHSIG when the thread that forked ends, not the process (prctl(2)): keep this one.
	runtime.LockOSThread()
	if len(os.Args) > 1 && os.Args[1] == bubblewrap.EnterArg {
		bubblewrap.Enter(os.Args[2:]) // does not return
	}
	if len(os.Args) > 1 && os.Args[1] == becomeArg {
		err := become(os.Args[2:])
		fmt.Fprintf(os.Stderr, "pfar-sandbox: %v\n", err)
		os.Exit(units.ExitGateway) // pfard may have ended as it answered
	}
	if len(os.Args) > 1 && os.Args[1] == probeArg {
		os.Exit(reportProbe(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == inspectArg {
		if err := inspectors(ctx, os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "pfar-sandbox: %v\n", err)
			question.Pause(ctx)
			os.Exit(1)
		}
		return
	}
	o, err := parse(os.Args[1:])
	if err == nil {
		err = bubblewrap.KeepMemory()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-sandbox: %v\n", err)
		os.Exit(units.ExitDisabled)
	}
	code, err := launch(ctx, o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-sandbox: %v\n", err)
	}
	journal.Settle()
	os.Exit(code)
}
