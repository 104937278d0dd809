// Command corpus is an MCP server of either generation of the protocol: every answer of it is made up from a seed, or
// plain where a client is to understand it.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/pfar/pfar/tests/corpus/shape"
)

func main() {
	var (
		seed       = flag.Uint64("seed", 1, "what all answers are made from")
		name       = flag.String("name", "corpus", "part of the URIs, so that no two servers have the same")
		tools      = flag.Int("tools", 40, "tools that are made up")
		page       = flag.Int("page", 0, "items per page of a list, 0 for all in one")
		generation = flag.String("generation", "legacy", "legacy (sessions, until 2025-11-25), modern (2026-07-28) or both")
		understood = flag.Bool("plain", false, "offer what clients understand, nothing made up")
	)
	flag.Parse()
	s := &server{page: *page, out: os.Stdout, modern: *generation != "legacy", legacy: *generation != "modern",
		watched: map[string]bool{}, listens: map[string][]string{}}
	if *understood {
		s.offer = newPlain(*name, s)
	} else {
		s.offer = made{shape.NewServer(*seed, *name, *tools), s}
	}
	if err := s.serve(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(1)
	}
}
