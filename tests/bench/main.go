// Command bench measures what pfar adds to a server: time to start, time for fifty, memory, connections; each against the plain program in the same run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	rounds := flag.Int("rounds", 15, "how often each start is measured")
	many := flag.Int("servers", 50, "how many servers are started at once")
	flag.Parse()
	if flag.Arg(0) == egressRole {
		if err := egressInside(context.Background(), flag.Args()[1:], *rounds); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if err := bench(context.Background(), *rounds, *many); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench measures everything, prints a table and returns an error if a limit is exceeded.
func bench(ctx context.Context, rounds, many int) error {
	dir, err := os.MkdirTemp("", "pfar-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the servers' users must reach it
		return err
	}
	bin := filepath.Join(dir, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", bin+"/",
		"./cmd/pfar", "./cmd/pfard", "./cmd/pfar-sandbox", "./cmd/pfar-egress", "./cmd/pfar-gateway", "./tests/echo", "./tests/load")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	everything := filepath.Join(os.Getenv("PFAR_TEST_SERVERS"), "node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	if _, err := os.Stat(everything); err != nil {
		return fmt.Errorf("finding the npm servers (PFAR_TEST_SERVERS): %w", err)
	}
	var results []result
	for _, measure := range []func() ([]result, error){
		func() ([]result, error) {
			return starts(ctx, dir, bin, rounds, map[string][]string{"Go echo": {filepath.Join(bin, "echo")}, "node server-everything": {"node", everything}})
		},
		func() ([]result, error) { return fleet(ctx, dir, bin, many) },
		func() ([]result, error) { return memory(ctx, dir, bin, many) },
		func() ([]result, error) { return egress(ctx, dir, bin, rounds) },
	} {
		r, err := measure()
		if err != nil {
			return err
		}
		results = append(results, r...)
	}
	describeMachine(os.Stdout)
	return printTable(os.Stdout, results)
}

var errLimit = errors.New("a limit is exceeded")
