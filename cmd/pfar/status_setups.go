package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pfar/pfar/units/control"
)

// setUpOf says how far the set-up of a server is, "" if there is none.
func (c statusVerb) setUpOf(report control.Report, server string) string {
	for _, now := range report.SetUps {
		if now.Server == server {
			return c.setUpWords(now)
		}
	}
	return ""
}

// setUpWords say how far a set-up is, and by which command its owner goes on. The link of its page is not among them:
// who has it answers in that person's place, and a status is passed on, to a log or to somebody who is asked for help.
// pfar cannot tell who looks either: everybody is root who uses sudo. pfar add shows the link.
func (c statusVerb) setUpWords(now control.Flow) string {
	words := now.Server
	own := now.Principal == fmt.Sprintf("uid %d", c.uid)
	client, ofClient := strings.CutPrefix(now.Principal, "client ")
	chat, ofChat := strings.CutPrefix(now.Principal, "chat ")
	switch {
	case ofClient:
		words += " (asked for by client " + client + ")"
	case ofChat:
		words += " (begun in the chat " + chat + ")"
	case !own:
		words += " (begun by " + now.Principal + ")"
	}
	words += " " + c.awaited(now)
	switch {
	case own:
		return words + fmt.Sprintf("; go on: pfar add %s; cancel: pfar add --cancel", now.Server)
	case ofClient, ofChat:
		return words + "; take it over: pfar add " + now.Server
	}
	return words + "; only that user can go on or cancel"
}

// awaited says what a set-up waits for, and how long.
func (c statusVerb) awaited(now control.Flow) (words string) {
	switch {
	case now.Wants != nil:
		words = "waits for " + now.Wants.Variable
	case !now.Deadline.IsZero():
		words = "waits for a person's consent"
	default:
		return strings.TrimSuffix("is under way: "+now.Detail, ": ")
	}
	if now.Paged {
		words += " on its page"
	}
	switch {
	case now.State == control.CredentialRefused && now.Reason == control.FlowNotStarted:
		words += " (the server did not start with the last one)"
	case now.State == control.CredentialRefused:
		words += " (the service refused the last one)"
	}
	return words + ", " + age(max(now.Deadline.Sub(c.now()), time.Second)) + " left"
}
