package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pfar/pfar/policies/audit/prose"
	"github.com/pfar/pfar/units/operator/wording"
)

// TestManualKnowsEveryVerbAndFlag compares the manual with the program, both ways.
func TestManualKnowsEveryVerbAndFlag(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar.1")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(b)
	c := newPfar(nil, nil, nil, func(string) string { return "" }, 0)
	root := rootCommand(c)
	flags := map[string]bool{"help": true}
	verbs := map[string]bool{"completion": true, "help": true}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd == root || !cmd.Runnable() || cmd.Hidden {
			return
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			flags[f.Name] = true
			if f.Shorthand != "" && !strings.Contains(manual, "\n.Fl "+f.Shorthand+"\n") {
				t.Errorf("the manual lacks -%s of --%s", f.Shorthand, f.Name)
			}
		})
		if cmd.HasSubCommands() {
			return
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "pfar ")
		verbs[strings.Fields(path)[0]] = true
		if !regexp.MustCompile(`(?m)^\.It Cm ` + path + `( |$)`).MatchString(manual) {
			t.Errorf("the manual lacks the verb %q", path)
		}
	}
	walk(root)
	for name := range flags {
		if !strings.Contains(manual, "Fl -"+name) {
			t.Errorf("the manual lacks --%s", name)
		}
	}
	for _, m := range regexp.MustCompile(`Fl -([a-z-]+)`).FindAllStringSubmatch(manual, -1) {
		if !flags[m[1]] {
			t.Errorf("the manual has --%s, which no verb has", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\.It Cm ([a-z]+)`).FindAllStringSubmatch(manual, -1) {
		if !verbs[m[1]] {
			t.Errorf("the manual has the verb %q, which pfar has not", m[1])
		}
	}
}

// TestManualKnowsTheEnvironment compares the manual's variables with the help's, and the kinds of records with the
// program's.
func TestManualKnowsTheEnvironment(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar.1")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n.Sh ENVIRONMENT\n")
	section, _, _ = strings.Cut(section, "\n.Sh ")
	variables := regexp.MustCompile(`(?m)^  ([A-Z_]+)`).FindAllStringSubmatch(environmentHelp, -1)
	for _, m := range variables {
		if !regexp.MustCompile(`(?m)^\.It Ev ` + m[1] + `\b`).MatchString(section) {
			t.Errorf("the manual lacks %s", m[1])
		}
	}
	if n := strings.Count(section, "\n.It Ev "); n != len(variables) {
		t.Errorf("the manual has %d variables where the help has %d", n, len(variables))
	}
	if kinds := ".Li " + strings.Join(prose.Kinds(), " , ") + " .\n"; !strings.Contains(string(b), kinds) {
		t.Errorf("the manual lacks %q", kinds)
	}
}

// TestEveryVerbPrintsJSON holds what the manual promises of --output, and of --json but for call.
func TestEveryVerbPrintsJSON(t *testing.T) {
	c := newPfar(nil, nil, nil, func(string) string { return "" }, 0)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if !cmd.HasParent() || !cmd.Runnable() || cmd.HasSubCommands() || cmd.Hidden || cmd.Name() == "connect" || cmd.Name() == "demo" {
			return
		}
		flags := cmd.LocalFlags()
		if cmd.Name() == "call" {
			flags, _ = toolsVerb{c}.callFlags()
		}
		for _, name := range []string{"output", "json"} {
			if flags.Lookup(name) == nil {
				t.Errorf("%s has no --%s", cmd.CommandPath(), name)
			}
		}
	}
	walk(rootCommand(c))
}

// TestExitCodesAreTheSameEverywhere compares the manual's list with the help's.
func TestExitCodesAreTheSameEverywhere(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+)  (.*)$`).FindAllStringSubmatch(exitCodesHelp, -1) {
		if !strings.Contains(string(b), ".It "+m[1]+"\n"+m[2]+"\n") {
			t.Errorf("the manual says something else of exit code %s", m[1])
		}
	}
}

// TestManualKnowsTheBounds compares the times and sizes that pfar(1) gives with the program's.
func TestManualKnowsTheBounds(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar.1")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.Join(strings.Fields(string(b)), " ")
	for _, want := range []string{
		fmt.Sprintf("at most %d KiB of UTF-8 without NUL", maxSecret>>10),
		fmt.Sprintf("more than %d KiB on the screen", wording.MaxText>>10),
		fmt.Sprintf("wait up to %.0f seconds until it runs", settleTimeout.Seconds()),
	} {
		if !strings.Contains(manual, want) {
			t.Errorf("the manual does not say %q", want)
		}
	}
	if maxPlaces != 3 || noticeTime != 30*time.Second {
		t.Error("the manual says these in words: maxPlaces, noticeTime")
	}
}
