// Command bench measures what pfar adds to a server: time to start, time for fifty, memory, connections; each against
// the plain program in the same run.
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
	only := flag.String("only", "", "measure this part alone: starts, fleet, memory, egress, console or calls")
	flag.Parse()
	if err := run(context.Background(), *rounds, *many, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run plays the role that the arguments name, the benchmark itself without any.
func run(ctx context.Context, rounds, many int, only string) error {
	var rest []string
	if flag.NArg() > 0 {
		rest = flag.Args()[1:]
	}
	switch flag.Arg(0) {
	case egressRole:
		return egressInside(ctx, rest, rounds)
	case floorRole:
		return runFloor(rest)
	case staticRole:
		return runStatic(rest)
	case schemaRole:
		return runSchema(os.Stdin, os.Stdout)
	}
	return bench(ctx, rounds, many, only)
}

// bench measures everything, prints a table and returns an error if a limit is exceeded.
func bench(ctx context.Context, rounds, many int, only string) error {
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
		"./cmd/pfar", "./cmd/pfard", "./cmd/pfar-sandbox", "./cmd/pfar-egress", "./cmd/pfar-gateway",
		"./cmd/pfar-setup", "./cmd/pfar-console", "./cmd/pfar-adapter", "./tests/echo", "./tests/load", "./tests/bench")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as they are shipped
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	everything := filepath.Join(os.Getenv("PFAR_TEST_SERVERS"), "node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	if _, err := os.Stat(everything); err != nil {
		return fmt.Errorf("finding the npm servers (PFAR_TEST_SERVERS): %w", err)
	}
	var results []result
	for _, part := range []struct {
		name    string
		measure func() ([]result, error)
	}{
		{"starts", func() ([]result, error) {
			return starts(ctx, dir, bin, rounds, map[string]program{
				"Go echo": {[]string{filepath.Join(bin, "echo")}, ""}, fmt.Sprintf("Go echo, %d credentials", keys): {[]string{filepath.Join(bin, "echo")}, keyed()},
				"node server-everything": {[]string{"node", everything}, ""},
			})
		}},
		{"fleet", func() ([]result, error) { return fleet(ctx, dir, bin, many) }},
		{"memory", func() ([]result, error) { return memory(ctx, dir, bin, many) }},
		{"egress", func() ([]result, error) { return egress(ctx, dir, bin, rounds) }},
		{"console", func() ([]result, error) {
			took, err := consolePages(ctx, dir, bin, rounds)
			return pageResult(took), err
		}},
		{"calls", func() ([]result, error) { return gateway(ctx, dir, bin, rounds) }},
	} {
		if only != "" && part.name != only {
			continue
		}
		r, err := part.measure()
		if err != nil {
			return err
		}
		results = append(results, r...)
	}
	if len(results) == 0 {
		return fmt.Errorf("there is no part %q to measure", only)
	}
	describeMachine(os.Stdout)
	return printTable(os.Stdout, results)
}

var errLimit = errors.New("a limit is exceeded")
