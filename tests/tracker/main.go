// Command tracker is an MCP server into which strangers write: an issue tracker, or a mailbox. It writes down every
// byte that reaches it, for that is public.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	text := flag.String("text", "", "file with what a stranger has written, or directory of such files: N.txt is that of issue N")
	poison := flag.String("poison", "", "file with what a stranger has put into all that is listed; it may be empty at first")
	scheme := flag.String("scheme", "tracker", "scheme of the URIs of its resources")
	reads := flag.Bool("reads", false, "say of each tool that it only reads")
	fetches := flag.Bool("fetches", false, "offer tools that open pages as well")
	received := flag.String("received", "", "file to which all that arrives is appended")
	flag.Parse()
	log, err := os.OpenFile(*received, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_ = log.Chmod(0o666) // after a restart it may run as another user; whoever made the file has done this
		s := &server{
			text: *text, scheme: *scheme, poison: *poison, reads: *reads, fetches: *fetches, received: log,
			out: bufio.NewWriter(os.Stdout), answers: make(map[string]chan []byte),
		}
		err = s.serve(os.Stdin)
	}
	if err != nil && err != io.EOF {
		fmt.Fprintln(os.Stderr, "tracker:", err)
		os.Exit(1)
	}
}
