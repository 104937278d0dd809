package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/mark3labs/mcp-go/mcp"
)

// message is as much of a JSON-RPC message as the bridge must know.
type message struct {
	Method string          `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params json.RawMessage `json:"params"`
}

// parseMessage reads a message; of a batch, which revision 2025-03-26 had, the ids are not known.
func parseMessage(line []byte) (message, error) {
	if !json.Valid(line) {
		return message{}, errors.New("not JSON")
	}
	var m message
	if line[0] != '{' {
		return message{}, nil
	}
	return m, json.Unmarshal(line, &m)
}

// maxMessage bounds one message on standard input, in bytes.
const maxMessage = 64 << 20

var errTooLong = fmt.Errorf("a message exceeds %d bytes", maxMessage)

// wantsAnswer reports whether the message is a request.
func (m message) wantsAnswer() bool {
	return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null"
}

// untilEOF reads standard input in the background, so that a signal ends the bridge while it waits for a line.
func untilEOF(ctx context.Context, r io.Reader, each func([]byte) error) error {
	done := make(chan error, 1)
	go func() { done <- readMessages(r, each) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxMessage {
			return nil, errTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// version is the revision that the message names, if that is one without sessions (2026-07-28).
func (m message) version() string {
	var params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	var version string
	if json.Unmarshal(m.Params, &params) != nil || json.Unmarshal(params.Meta[mcp.MetaKeyProtocolVersion],
		&version) != nil || !mcp.IsModernProtocol(version) {
		return ""
	}
	return version
}

// readMessages calls each with every line that is not empty, until the input ends.
func readMessages(r io.Reader, each func([]byte) error) error {
	buffered := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(buffered)
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := each(line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading standard input: %w", err)
		}
	}
}
