package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/pfar/pfar/tests/stdio"
)

// actor is a tool whose calls end as the lines of a file say: die, hang, schema and fail, else well. It takes the first
// line away before it does what that says, and adds one to the file PATH.calls.
func actor(path string) stdio.Tool {
	var mu sync.Mutex
	return stdio.Tool{
		Name: "look", Description: "ends as it is told",
		Output: `{"type":"object","properties":{"said":{"type":"string"}},"required":["said"]}`,
		Call: func(json.RawMessage) (string, error) {
			mu.Lock()
			act, err := next(path)
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
		},
	}
}

// next takes the first line of a file away.
func next(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	act, rest, _ := strings.Cut(string(b), "\n")
	if err := os.WriteFile(path, []byte(rest), 0o666); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path+".calls", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.WriteString("called\n")
	return act, err
}
