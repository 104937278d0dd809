package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// listTools starts a program as any client does and returns the time until its tools are listed.
func listTools(ctx context.Context, argv []string) (time.Duration, error) {
	begin := time.Now()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// What a sandbox has: a variable such as NODE_EXTRA_CA_CERTS would make the plain program the slower one.
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}
	in, err := c.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	defer func() {
		in.Close()
		c.Process.Kill()
		c.Wait()
	}()
	answers := bufio.NewReader(out)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	if err := awaitAnswer(answers, "1"); err != nil {
		return 0, err
	}
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if err := awaitAnswer(answers, "2"); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

func awaitAnswer(r *bufio.Reader, id string) error {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("waiting for answer %s: %w", id, err)
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(line, &m) == nil && string(m.ID) == id && m.Method == "" {
			return nil
		}
	}
}

// listAll starts n of a program at once and returns the time until all their tools are listed.
func listAll(ctx context.Context, argv []string, n int) (time.Duration, error) {
	begin := time.Now()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, errs[i] = listTools(ctx, argv) })
	}
	all.Wait()
	took := time.Since(begin)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}
