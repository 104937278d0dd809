package entries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strings"
)

// Read calls next, which decodes one entry, for each that journalctl writes as JSON, until it returns an error: io.EOF
// is the end. What journalctl complains about goes to complaints.
func Read(ctx context.Context, complaints io.Writer, args []string, next func(*json.Decoder) error) error {
	return read(ctx, command(ctx, args), complaints, math.MaxInt64, next)
}

func command(ctx context.Context, args []string) *exec.Cmd {
	return exec.CommandContext(ctx, "journalctl", args...)
}

// errEnough ends the reading early.
var errEnough = errors.New("more entries follow")

// read is Read of at most that many bytes. If there are more, the error is errEnough.
func read(
	ctx context.Context, cmd *exec.Cmd, complaints io.Writer, most int64, next func(*json.Decoder) error,
) error {
	cmd.Stderr = complaints
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("reading the journal: %w", err)
	}
	bounded := &io.LimitedReader{R: out, N: most}
	for decoder := json.NewDecoder(bounded); err == nil; {
		err = next(decoder)
	}
	if bounded.N <= 0 {
		err = errEnough
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else {
		_ = cmd.Process.Kill() // it may have more to say, and so may what it has started
		_ = out.Close()
	}
	ended := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("reading the journal: %w", err)
	case ended != nil:
		return fmt.Errorf("reading the journal: journalctl: %w", ended)
	}
	return nil
}

// asJSON is how many times as long an entry is as its text at most, about: each byte can be a number of its own.
const asJSON = 16

// Tail returns the last lines of a log, of at most q.Lines entries, in about limit bytes. more says that there are
// earlier ones, or may be.
func Tail(ctx context.Context, q Query, limit int) (text string, more bool, err error) {
	var complaints strings.Builder
	var newest []string // the newest first
	seen, left := 0, limit
	all := q
	all.Lines = -1 // another server's may be among them
	cmd := command(ctx, append([]string{"--quiet", "--reverse"}, all.Arguments()...))
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"} // nothing of pfard's own
	err = read(ctx, cmd, &complaints, asJSON*int64(limit), func(decoder *json.Decoder) error {
		var e Entry
		if err := decoder.Decode(&e); err != nil || !q.Wants(e) {
			return err
		}
		if seen++; seen > q.Lines {
			return errEnough
		}
		var b bytes.Buffer
		_ = e.Write(&b) // a buffer takes all
		newest = append(newest, b.String())
		if left -= b.Len(); left <= 0 {
			return errEnough
		}
		return nil
	})
	more = errors.Is(err, errEnough)
	if err != nil && !errors.Is(err, errEnough) {
		if first, _, _ := strings.Cut(complaints.String(), "\n"); first != "" {
			err = fmt.Errorf("%w: %s", err, first)
		}
		return "", false, err
	}
	slices.Reverse(newest)
	return strings.Join(newest, ""), more, nil
}
