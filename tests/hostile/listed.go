package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/pfar/pfar/tests/listing"
)

// serveListed is a server whose every list holds a text, and that writes down all that it is sent.
func serveListed(text, received string, in io.Reader, out io.Writer) error {
	log, err := os.OpenFile(received, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	answers := listing.Answers(text)
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if _, failed := log.Write(line); failed != nil {
			return failed
		}
		var q struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(line, &q) == nil && q.ID != nil && q.Method != "" {
			answer, ok := answers[q.Method]
			switch {
			case q.Method == "tools/call":
				answer = `{"content":[{"type":"text","text":"nothing"}]}`
			case !ok:
				answer = "{}"
			}
			if q.Method == "server/discover" {
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`+"\n", q.ID)
				continue
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", q.ID, answer)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
