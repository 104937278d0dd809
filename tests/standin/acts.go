package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/pfar/pfar/tests/stdio"
)

// actors are two tools whose calls end as the lines of a file say: die, hang, schema and fail, else well. A call takes
// the first line of its file away before it does what that says. Those of look are in the file PATH, and each adds a
// line to PATH.calls. Those of write are in PATH.write, and each adds its text to PATH.written.
func actors(path string) []stdio.Tool {
	const output = `{"type":"object","properties":{"said":{"type":"string"}},"required":["said"]}`
	var mu sync.Mutex
	acted := func(acts, record, line string) (string, error) {
		mu.Lock()
		act, err := next(acts, record, line)
		mu.Unlock()
		switch {
		case err != nil:
			return "", err
		case act == "die":
			os.Exit(3)
		case act == "hang":
			select {}
		case act == "schema":
			return `{"said":5}`, nil
		case act == "fail":
			return "", errors.New("the service said no")
		}
		return `{"said":"well"}`, nil
	}
	return []stdio.Tool{
		{
			Name: "look", Description: "ends as it is told", Output: output,
			Call: func(json.RawMessage) (string, error) { return acted(path, path+".calls", "called") },
		}, {
			Name: "write", Description: "writes a line, and ends as it is told", Output: output,
			Schema: `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`,
			Call: func(arguments json.RawMessage) (string, error) {
				var a struct{ Text string }
				if err := json.Unmarshal(arguments, &a); err != nil {
					return "", err
				}
				return acted(path+".write", path+".written", a.Text)
			},
		},
	}
}

// next takes the first line of a file away, "" if there is none, and adds a line to another one.
func next(acts, record, line string) (string, error) {
	b, err := os.ReadFile(acts)
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	act, rest, _ := strings.Cut(string(b), "\n")
	if len(b) > 0 {
		if err := os.WriteFile(acts, []byte(rest), 0o666); err != nil {
			return "", err
		}
	}
	f, err := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return act, err
}
