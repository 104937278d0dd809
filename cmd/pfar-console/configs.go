package main

import (
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/clientfile"
)

// configs are the configurations of a client to copy, one for each program that pfar knows.
type configs struct {
	List  []config
	Token bool // one of them has room for the client's token
}

// config is what the file of one program has.
type config struct {
	ID            string // of the text in the page
	Program, File string
	Text          string
	Command       bool // Text prints the configuration: the page cannot show it as it is
}

// maxConfigs is how many clients have their configurations on the page: each has about 4 KiB of them.
const maxConfigs = 20

// configsOf returns what pfar client config prints of a client, for each program. A program that speaks HTTP has the
// endpoint and room for a token, which nobody here knows; others, and all without an endpoint, have the command.
func configsOf(c attach.Client, number int, endpoint string, by attach.Connects) (all configs) {
	if c.Off || c.Name == access.Operator || number >= maxConfigs {
		return all
	}
	for _, name := range clientfile.Names() {
		p, _ := clientfile.Find(name)
		var entry clientfile.Entry
		web := !p.Stdio && endpoint != "" && !clientfile.ByCommand(c.Name, c.HasToken)
		switch {
		case web:
			entry = clientfile.Web(endpoint, c.Name, "", clientfile.Token)
		case by.Pfar != "":
			entry = clientfile.Command(by.Pfar, by.Run, clientfile.As(c.Name, "")...)
		default: // at another machine nobody is told of programs of this one
			continue
		}
		text, err := p.Write(entry)
		if err != nil {
			continue
		}
		all.Token = all.Token || web
		one := config{ID: fmt.Sprintf("config-%d-%s", number, name), Program: name, File: p.File, Text: text}
		if !plain(text) {
			one.Command, one.Text = true, visible.Reveal("pfar client config "+c.Name+" --for "+name)
		}
		all.List = append(all.List, one)
	}
	return all
}

// plain reports whether a text shows all that is in it, line by line: what a person copies is what the page shows.
func plain(text string) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if visible.Reveal(line) != line {
			return false
		}
	}
	return true
}
