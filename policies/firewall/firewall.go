// Package firewall puts an egress.Ruleset, its loopback and its log into the kernel's network namespace, over netlink.
package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// maxComment is what nft(8) takes and shows, with its closing NUL (NFTNL_UDATA_COMMENT_MAXLEN).
const maxComment = 128

// modules is what a ruleset needs of the kernel; a user namespace may have them loaded.
const modules = "the kernel has no nf_tables, or not all of it (modprobe -a nf_tables nft_chain_nat nf_nat nft_redir " +
	"nft_ct nft_limit nft_log nfnetlink_log nft_reject_inet)"

// Apply loads r into the calling thread's network namespace, in place of the table of its name if there is one: all of
// it, or nothing. It wants CAP_NET_ADMIN over the namespace.
func Apply(r egress.Ruleset) error {
	s, err := dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return loading(r.Table, err)
	}
	defer s.close()
	return s.apply(r)
}

func (s socket) apply(r egress.Ruleset) error {
	begin, rest, err := batch(r)
	if err != nil {
		return loading(r.Table, err)
	}
	// A namespace is new as a rule, and has no table. To delete one costs ten milliseconds: closing the socket waits
	// until no packet can still see it.
	err = s.transact(begin, []message{
		request("adding the table", unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, tableName(r)),
	}, rest)
	if errors.Is(err, unix.EEXIST) {
		err = s.transact(begin, []message{
			request("deleting the table of before", unix.NFT_MSG_DELTABLE, 0, tableName(r)),
			request("adding the table", unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, tableName(r)),
		}, rest)
	}
	if err != nil {
		return loading(r.Table, err)
	}
	return nil
}

// transact sends all of it as one datagram. The last message before the end is the one to be acknowledged: only after
// the commit does the kernel answer.
func (s socket) transact(parts ...[]message) error {
	messages := slices.Concat(parts...)
	return s.exchange(len(messages)-2, messages)
}

func tableName(r egress.Ruleset) []byte {
	return appendAttribute(nil, unix.NFTA_TABLE_NAME, cstring(r.Table))
}

func loading(table string, err error) error {
	for _, lacks := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.ENOENT} {
		if errors.Is(err, lacks) {
			return fmt.Errorf("loading table %q: %s: %w", table, modules, err)
		}
	}
	return fmt.Errorf("loading table %q: %w", table, err)
}

// batch returns a transaction as its beginning, before the table itself, and the rest. The google/nftables connection
// is not used to send it: that asks the kernel to send each rule back and to acknowledge it, which for the 512 rules of
// a long declaration is more than a socket holds.
func batch(r egress.Ruleset) (begin, rest []message, err error) {
	if r.Family != "inet" {
		return nil, nil, fmt.Errorf("family %q is not inet", r.Family)
	}
	if r.Table == "" || len(r.Chains) == 0 {
		return nil, nil, errors.New("a table wants a name, and a chain")
	}
	frame := nfgenmsg(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	// That the commit failed is answered to the first message.
	begin = []message{{doing: "committing the transaction", kind: unix.NFNL_MSG_BATCH_BEGIN, body: frame}}
	for _, c := range r.Chains {
		b, err := chain(r.Table, c)
		if err != nil {
			return nil, nil, fmt.Errorf("chain %q: %w", c.Name, err)
		}
		rest = append(rest, request(fmt.Sprintf("adding chain %q", c.Name), unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, b))
	}
	for _, c := range r.Chains {
		for _, rule := range c.Rules {
			b, err := encode(r.Table, c.Name, rule)
			if err != nil {
				return nil, nil, fmt.Errorf("rule %q: %w", rule, err)
			}
			m := request("adding rule", unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, b)
			m.rule = rule
			rest = append(rest, m)
		}
	}
	return begin, append(rest, message{doing: "ending the transaction", kind: unix.NFNL_MSG_BATCH_END, body: frame}), nil
}

// request is a message of nf_tables.
func request(doing string, kind, flags uint16, attributes []byte) message {
	return message{doing: doing, kind: unix.NFNL_SUBSYS_NFTABLES<<8 | kind, flags: flags,
		body: append(nfgenmsg(unix.NFPROTO_INET, 0), attributes...)}
}

// nfgenmsg is what every message of nfnetlink begins with: family, version, resource.
func nfgenmsg(family byte, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}

func cstring(s string) []byte { return append([]byte(s), 0) }

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func chain(table string, c egress.Chain) ([]byte, error) {
	if c.Hook != "output" {
		return nil, fmt.Errorf("hook %q is not output", c.Hook)
	}
	if c.Type != "nat" && c.Type != "filter" {
		return nil, fmt.Errorf("type %q is neither nat nor filter", c.Type)
	}
	policy := uint32(0) // NF_DROP
	if c.Accept {
		policy = 1
	}
	hook := appendAttribute(nil, unix.NFTA_HOOK_HOOKNUM, number(unix.NF_INET_LOCAL_OUT))
	hook = appendAttribute(hook, unix.NFTA_HOOK_PRIORITY, number(uint32(int32(c.Priority))))
	b := appendAttribute(nil, unix.NFTA_CHAIN_TABLE, cstring(table))
	b = appendAttribute(b, unix.NFTA_CHAIN_NAME, cstring(c.Name))
	b = appendAttribute(b, unix.NLA_F_NESTED|unix.NFTA_CHAIN_HOOK, hook)
	b = appendAttribute(b, unix.NFTA_CHAIN_POLICY, number(policy))
	return appendAttribute(b, unix.NFTA_CHAIN_TYPE, cstring(c.Type)), nil
}

func encode(table, chain string, r egress.Rule) ([]byte, error) {
	elements, err := expressions(r)
	if err != nil {
		return nil, err
	}
	b := appendAttribute(nil, unix.NFTA_RULE_TABLE, cstring(table))
	b = appendAttribute(b, unix.NFTA_RULE_CHAIN, cstring(chain))
	b = appendAttribute(b, unix.NLA_F_NESTED|unix.NFTA_RULE_EXPRESSIONS, slices.Concat(elements...))
	if r.Comment != "" {
		if len(r.Comment) >= maxComment {
			return nil, fmt.Errorf("the comment is longer than %d octets", maxComment-1)
		}
		b = appendAttribute(b, unix.NFTA_RULE_USERDATA, userdata.AppendString(nil, userdata.TypeComment, r.Comment))
	}
	return b, nil
}
