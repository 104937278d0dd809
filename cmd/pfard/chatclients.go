package main

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pfar/pfar/policies/access"
)

// chatClient is as whom the process of a chat asks the gateway.
type chatClient struct {
	client string // "": the default one
	uid    uint32 // of the process
}

// admitChat has the user of a chat's process be the client of that chat, as long as the client is let in. It reports
// whether that is new.
func (c *clientele) admitChat(name string, as chatClient) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.chats[name] == as {
		return false
	}
	if c.chats == nil {
		c.chats = map[string]chatClient{}
	}
	c.chats[name] = as
	c.again()
	return true
}

// dismissChats lets no process of a chat in any more that does not stay.
func (c *clientele) dismissChats(stays func(name string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.chats)
	maps.DeleteFunc(c.chats, func(name string, _ chatClient) bool { return !stays(name) })
	if len(c.chats) != before {
		c.again()
	}
}

// withChats are the declared clients with the users of chats. What a person has declared for a user counts, and a
// client that is not there gets none. It is called with c.mu held.
func (c *clientele) withChats() []access.Client {
	list := slices.Clone(c.list)
	for _, name := range slices.Sorted(maps.Keys(c.chats)) {
		chat := c.chats[name]
		client := cmp.Or(chat.client, access.Default)
		at := slices.IndexFunc(list, func(o access.Client) bool { return o.Name == client })
		switch {
		case slices.ContainsFunc(list, func(o access.Client) bool { return slices.Contains(o.UIDs, chat.uid) }):
			continue
		case at < 0 && client != access.Default:
			continue
		case at < 0:
			at, list = len(list), append(list, access.BuiltIn(access.Default))
		}
		list[at].UIDs = append(slices.Clone(list[at].UIDs), chat.uid)
	}
	return list
}
