package main

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies/broker"
)

// serviceText says what a service gets and needs, no line of it wider than the columns.
func serviceText(s catalog.Service, columns int) string {
	b := page{columns: columns}
	head := s.Title + " (" + s.Name + ")"
	if s.Summary != "" {
		head += ": " + s.Summary
	}
	b.line("", escape(head, oneLine))
	row := func(name, text string) { b.item(fmt.Sprintf("  %-8s", name), escape(text, oneLine)) }
	s = s.AsAdded()
	if s.Program.Gone != "" {
		row("runs", "nothing: "+s.Program.Gone)
	} else {
		row("runs", cmp.Or(s.Program.Package, s.Program.Command, "elsewhere, at "+s.Program.URL))
		row("sees", seenBy(s))
		row("reaches", reachedBy(s))
		row("holds", heldBy(s))
	}
	row("label", "its output counts as "+string(s.Label))
	for _, p := range s.Parameters {
		row("asks", p.Question+forExample(p.Example))
	}
	for _, k := range s.Secrets {
		words := append([]string{k.Key + ":"}, sentences(k)...)
		if k.Where == "" {
			words = slices.Insert(words, 1, "pfar does not know where to get it.")
		}
		row("token", strings.Join(words, " "))
		if k.URL != "" {
			row("", k.URL)
		}
	}
	if host := hostOf(s.Device); host != "" {
		row("sign-in", "with a code on another device, at "+host)
	}
	if host := hostOf(s.Code); host != "" {
		row("sign-in", "with a browser on this machine, at "+host)
	}
	if s.Test != nil {
		row("test", fmt.Sprintf("%s %s, which only reads", s.Test.Tool, s.Test.Arguments))
	} else if keys := neededBy(s); len(keys) > 0 {
		row("test", "none: pfar cannot check whether "+strings.Join(keys, " and ")+" is right")
	}
	if s.Reviewed() != nil {
		row("tools", "pfar ships digests of definitions that its makers have read")
	}
	if s.Remote.URL != "" && s.Program.URL == "" {
		row("remote", s.Remote.URL+", the vendor's own server")
	}
	if filepath.IsAbs(s.File) { // pfar's own entries are in the program
		row("entry", s.File)
	}
	return b.String()
}

// neededBy returns the keys of the secrets that a service cannot do without.
func neededBy(s catalog.Service) (keys []string) {
	for _, k := range s.Secrets {
		if !k.Optional {
			keys = append(keys, k.Key)
		}
	}
	return keys
}

func forExample(text string) string {
	if text == "" {
		return ""
	}
	return " For example: " + text
}

// sentences say how a person gets a secret.
func sentences(k catalog.Secret) (list []string) {
	if k.Where != "" {
		list = append(list, k.Where)
	}
	if len(k.Scopes) > 0 {
		list = append(list, "It needs the rights "+strings.Join(k.Scopes, ", ")+".")
	}
	if k.Optional {
		list = append(list, "The server also runs without it.")
	}
	return list
}

// seenBy says which files a server has.
func seenBy(s catalog.Service) string {
	var list []string
	for _, p := range s.Parameters {
		switch p.Access {
		case "read":
			list = append(list, p.Name+", which it may read")
		case "write":
			list = append(list, p.Name+", which it may change")
		}
	}
	if len(list) == 0 {
		list = append(list, "no file of yours")
	}
	if s.Program.State {
		list = append(list, "its home, which outlives it")
	}
	return strings.Join(list, "; ")
}

// reachedBy says which hosts a server reaches.
func reachedBy(s catalog.Service) string {
	if len(s.Domains) == 0 {
		return "nothing"
	}
	return strings.Join(s.Domains, ", ") + ", and nothing else"
}

// heldBy says how a server gets its secrets.
func heldBy(s catalog.Service) string {
	var list []string
	for _, k := range s.Secrets {
		switch k.Deliver {
		case broker.OnWire:
			var places []string
			for _, p := range k.In {
				places = append(places, p.String())
			}
			const text = "a placeholder in %s: the egress bridge puts %s into requests to %s (%s)"
			hosts, in := strings.Join(k.Hosts, ", "), strings.Join(places, ", ")
			list = append(list, fmt.Sprintf(text, k.Env, k.Key, hosts, in))
		case broker.InFile:
			list = append(list, fmt.Sprintf("%s, in a file that %s names", k.Key, k.Env))
		default:
			list = append(list, fmt.Sprintf("%s, in %s", k.Key, k.Env))
		}
	}
	if len(list) == 0 {
		return "no secret"
	}
	return strings.Join(list, "; ")
}

// hostOf returns the host at which people sign in.
func hostOf(s *catalog.SignIn) string {
	if s == nil {
		return ""
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return s.URL
	}
	return u.Hostname()
}
