package main

import (
	"context"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
)

// explanation is what a server can see and reach, in words: the lines of each paragraph.
type explanation struct{ Paragraphs [][]string }

// showExplain makes the page of an explanation.
func showExplain(s *site, server string) maker {
	return func(ctx context.Context, _ *session) (content, error) {
		c := content{title: visible.Reveal(server) + " in words", template: "explain", quiet: true}
		text, more, err := s.archive.view(ctx, attach.View{What: attach.ViewExplain, Subject: server}, "the explanation")
		if err == nil && more {
			err = tooLong("pfar explain " + server)
		}
		c.body = explanation{paragraphs(text)}
		return c, err
	}
}

// paragraphs splits a text at its empty lines.
func paragraphs(text string) (list [][]string) {
	var lines []string
	end := func() {
		if len(lines) > 0 {
			list, lines = append(list, lines), nil
		}
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			end()
			continue
		}
		lines = append(lines, visible.Reveal(line))
	}
	end()
	return list
}
