// Command echo is an MCP server that does what it is told, well or badly: the tests' and the benchmarks' stand-in for a
// real one.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pfar/pfar/tests/stdio"
)

func main() {
	var (
		tools      = flag.Int("tools", 0, "add this many tools that do nothing")
		page       = flag.Int("page", 0, "tools per page of tools/list")
		crash      = flag.Bool("crash", false, "exit with status 3 at once")
		crashAfter = flag.Duration("crash-after", 0, "exit with status 3 after this time")
		ignoreTerm = flag.Bool("ignore-term", false, "ignore SIGTERM")
		ignoreEOF  = flag.Bool("ignore-eof", false, "go on after stdin has ended")
		slowExit   = flag.Duration("slow-exit", 0, "wait this long after stdin has ended")
		orphan     = flag.String("orphan", "", "leave a grandchild behind that sleeps, with this as an argument")
		sleep      = flag.String("sleep", "", "sleep for an hour, deaf to signals; the argument is for whoever looks for it")
		detach     = flag.String("detach", "", "start the sleeper in a session of its own and exit")
		useProxy   = flag.Bool("use-proxy", false, "ask the proxy for a host once, at the start")
		label      = flag.String("label", "", "what the tool label answers")
	)
	flag.Parse()
	switch {
	case *sleep != "":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
		time.Sleep(time.Hour)
		return
	case *detach != "":
		start("-sleep", *detach)
		return
	case *crash:
		fmt.Fprintln(os.Stderr, "echo: crashing as told")
		os.Exit(3)
	}
	switch {
	case *ignoreTerm:
		signal.Ignore(syscall.SIGTERM)
	case *ignoreEOF, *slowExit > 0:
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM)
		go func() {
			<-told
			fmt.Fprintln(os.Stderr, "echo: ends on SIGTERM")
			os.Exit(0)
		}()
	}
	if *orphan != "" {
		start("-detach", *orphan)
	}
	if *crashAfter > 0 {
		time.AfterFunc(*crashAfter, func() { os.Exit(3) })
	}
	if *useProxy {
		go askProxy()
	}
	s := &stdio.Server{Name: "echo", PageSize: *page}
	s.SetTools(append(list(s, *label), dummies(*tools)...))
	if err := s.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
	time.Sleep(*slowExit)
	if *ignoreEOF {
		time.Sleep(time.Hour)
	}
}

// askProxy makes a connection to the proxy and asks for what is refused, so that there is a bridge.
func askProxy() {
	u, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil {
		return
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		return
	}
	defer c.Close()
	fmt.Fprint(c, "CONNECT undeclared.example:443 HTTP/1.1\r\nHost: undeclared.example:443\r\n\r\n")
	io.Copy(io.Discard, c)
}

// start runs this program again in a session of its own, and does not wait: with one more such step between, the
// sleeper is nobody's child.
func start(args ...string) {
	c := exec.Command("/proc/self/exe", args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func dummies(n int) []stdio.Tool {
	var tools []stdio.Tool
	for i := range n {
		tools = append(tools, stdio.Tool{
			Name:        fmt.Sprintf("dummy-%04d", i),
			Description: "does nothing, at some length, so that a list of many is as large as a real one",
			Schema:      `{"type":"object","properties":{"a":{"type":"string","description":"first"},"b":{"type":"integer","description":"second"}},"required":["a"]}`,
			Call:        func(json.RawMessage) (string, error) { return "nothing", nil },
		})
	}
	return tools
}

func list(s *stdio.Server, label string) []stdio.Tool {
	tools := []stdio.Tool{
		{Name: "echo", Description: "returns message",
			Schema: `{"type":"object","properties":{"message":{"type":"string","description":"text to return"}},"required":["message"]}`,
			Call: func(arguments json.RawMessage) (string, error) {
				var a struct {
					Message string `json:"message"`
				}
				err := json.Unmarshal(arguments, &a)
				return a.Message, err
			}},
		{Name: "label", Description: "returns the argument of -label", Call: func(json.RawMessage) (string, error) { return label, nil }},
		{Name: "arguments", Description: "returns the program's arguments as JSON", Call: func(json.RawMessage) (string, error) {
			b, err := json.Marshal(os.Args[1:])
			return string(b), err
		}},
		{Name: "environment", Description: "returns the environment, a variable a line", Call: func(json.RawMessage) (string, error) {
			env := os.Environ()
			slices.Sort(env)
			return strings.Join(env, "\n"), nil
		}},
		{Name: "crash", Description: "exits with status 3", Call: func(json.RawMessage) (string, error) {
			os.Exit(3)
			return "", nil
		}},
		{Name: "sleep", Description: "answers after so many milliseconds", Schema: `{"type":"object","properties":{"milliseconds":{"type":"integer"}}}`,
			Call: func(arguments json.RawMessage) (string, error) {
				var a struct {
					Milliseconds int `json:"milliseconds"`
				}
				err := json.Unmarshal(arguments, &a)
				time.Sleep(time.Duration(a.Milliseconds) * time.Millisecond)
				return "awake", err
			}},
		{Name: "allocate", Description: "holds so many bytes of memory", Schema: `{"type":"object","properties":{"bytes":{"type":"integer"}}}`, Call: allocate()},
	}
	added := stdio.Tool{Name: "added", Description: "was not there at the start", Call: func(json.RawMessage) (string, error) { return "added", nil }}
	all := slices.Clone(tools)
	var mu sync.Mutex // guards all: calls run beside each other
	change := stdio.Tool{Name: "change", Description: "adds the tool added, or takes it away, and says so (list_changed)"}
	change.Call = func(json.RawMessage) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if i := slices.IndexFunc(all, func(t stdio.Tool) bool { return t.Name == added.Name }); i >= 0 {
			all = slices.Delete(slices.Clone(all), i, i+1)
		} else {
			all = append(slices.Clone(all), added)
		}
		s.SetTools(all)
		return fmt.Sprint(len(all)), nil
	}
	all = append(all, change)
	return all
}

// allocate keeps what it was asked for and touches every page, so that it counts.
func allocate() func(json.RawMessage) (string, error) {
	var held [][]byte
	return func(arguments json.RawMessage) (string, error) {
		var a struct {
			Bytes int `json:"bytes"`
		}
		if err := json.Unmarshal(arguments, &a); err != nil {
			return "", err
		}
		b := make([]byte, a.Bytes)
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = 1
		}
		held = append(held, b)
		return fmt.Sprintf("%d bytes held", a.Bytes), nil
	}
}
