package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// Watch calls lost whenever somebody else has removed the table, or a part of it, from the namespace that the calling
// thread is in, until ctx ends. To flush the whole ruleset is how many a firewall's script begins.
func Watch(ctx context.Context, lost func()) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("watching the machine's tables: %w", err)
	}
	defer c.Close()
	if err := c.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("watching the machine's tables: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	gone := false
	for {
		list, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // there was more than the socket holds
			lost()
			continue
		case err != nil:
			return fmt.Errorf("watching the machine's tables: %w", err)
		}
		for _, m := range list {
			switch m.Header.Type &^ (unix.NFNL_SUBSYS_NFTABLES << 8) {
			case unix.NFT_MSG_NEWTABLE: // Apply has deleted the old one in the same transaction
				gone = gone && !ours(m.Data)
			case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE:
				gone = gone || ours(m.Data)
			case unix.NFT_MSG_NEWGEN: // the transaction's end
				if gone {
					lost()
				}
				gone = false
			}
		}
	}
}

// ours reports whether a message is about this package's table, or something in it.
func ours(message []byte) bool {
	const header = 4 // struct nfgenmsg, which begins with the family
	if len(message) < header || message[0] != unix.NFPROTO_INET {
		return false
	}
	d, err := netlink.NewAttributeDecoder(message[header:])
	if err != nil {
		return false
	}
	for d.Next() {
		if d.Type() == unix.NFTA_TABLE_NAME { // which NFTA_CHAIN_TABLE and NFTA_RULE_TABLE are, too
			return d.String() == (egress.Hold{}).Table(time.Time{}).Name
		}
	}
	return false
}
