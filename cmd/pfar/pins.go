package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
	"github.com/spf13/cobra"
)

const pinsHelp = `Show tools, prompts and instructions that are new, or have changed since they were accepted. pfar holds
them: no client sees them or can call them. All accepted ones work.

DRIFT says that the server's version or its program has changed. A new version alone holds nothing. A changed
program does not start again until you accept it.

pfar itself accepts most of the first definitions of a server. The exceptions are pins = "hold" in the
declaration, text that inspectors find suspicious, invisible characters, and names of other servers' tools.
UNREVIEWED counts definitions and resources that no person has reviewed: neither you nor the developers of pfar.
Clients get them as a stranger's text: a session that lists them becomes raw, so that its calls wait for you more
often. This does not apply if the declaration says that strangers write nothing there (trust public_source =
false). The gate ignores the server's claims about unreviewed definitions, and clients do not get unreviewed
instructions. After you accept the definitions, these restrictions end.`

const pinsAcceptHelp = `Show the held and unreviewed definitions of a server, or the named ones, and accept exactly those.

A name is search for a tool, prompt:greet for a prompt, or instructions. With the digest that "pfar pins show"
prints, as in search@3f2a9c0d1e5b7788, it means that definition and no other. If the server changes one of
them meanwhile, nothing is accepted. Without a terminal this needs --yes. If nothing is held, this accepts
the server's current version and program.

You also review definitions that pfar itself accepted at first use. Then a session can list them without
becoming raw, and two claims of the server count: that a tool only reads, and, if its outputSchema has no
room for text, that its results are only typed values, which need no fence. "pfar pins show" says what its
results are.

--trust-readonly also says that the named tools are pure: they only read, and the same arguments have the same
result. A flow may then use such a result again, and the tools are listed as flow-safe. pfar refuses this for a
tool that does not itself claim to only read (readOnlyHint). It ends when the definition changes, or with
--trust-readonly=false. It changes nothing of what the gate decides.`

const pinsForgetHelp = `Forget the accepted definitions of a server. pfar then treats its next definitions as its
first ones, and accepts or holds them as for a new server. If the server runs, this happens at once.`

// pinsVerb shows and accepts the definitions of tools.
type pinsVerb struct{ *pfar }

func (c pinsVerb) pinsCommand() *cobra.Command {
	pins := c.outputFlag(&cobra.Command{
		Use:     "pins",
		Short:   "Show new and changed tools, and accept them",
		Long:    pinsHelp,
		Example: example("pfar pins", "pfar pins show notion", "pfar pins accept notion search"),
		RunE:    alone(c.pinsList),
	})
	var yes bool
	var pure trust
	accept := c.outputFlag(&cobra.Command{
		Use: "accept SERVER [TOOL...]", Short: "Accept held or unreviewed definitions of a server", Long: pinsAcceptHelp,
		Example: example("pfar pins accept notion", "pfar pins accept notion search prompt:summary",
			"pfar pins accept notion search@3f2a9c0d1e5b7788 --yes", "pfar pins accept notion --yes --json",
			"pfar pins accept notion search --trust-readonly"),
		Args: serverAndMore, ValidArgsFunction: c.completeHeld,
		RunE: func(cmd *cobra.Command, args []string) error {
			pure.said = cmd.Flags().Changed(trustFlag)
			return c.pinsAccept(cmd.Context(), args[0], args[1:], pure, yes)
		},
	})
	forget := c.outputFlag(&cobra.Command{
		Use: "forget SERVER", Short: "Forget the accepted definitions of a server", Long: pinsForgetHelp,
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.pinsForget(cmd.Context(), args[0], yes) },
	})
	accept.Flags().BoolVar(&pure.is, trustFlag, false, "also say that the named tools only read, and answer alike")
	for _, cmd := range []*cobra.Command{accept, forget} {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	pins.AddCommand(
		c.outputFlag(&cobra.Command{
			Use: "show SERVER [TOOL...]", Short: "Show held definitions as a difference to the accepted ones",
			Example: example("pfar pins show notion", "pfar pins show notion search", "pfar pins show notion --json | jq "+
				"'.descriptors[].definition'"),
			Args: serverAndMore, ValidArgsFunction: c.completeHeld,
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.pinsShow(cmd.Context(), args[0], args[1:])
			},
		}), accept, forget)
	return pins
}

func serverAndMore(cmd *cobra.Command, args []string) error {
	return arguments("SERVER")(cmd, args[:min(1, len(args))])
}

// completeHeld completes a server and then what is held of it.
func (c pinsVerb) completeHeld(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return offer(c.offeredServers)(cmd, args, toComplete)
	}
	ctx, cancel := forShell(cmd)
	defer cancel()
	all, err := c.allPins(ctx)
	if err != nil {
		return nil, noFiles
	}
	var titles []string
	for _, p := range all {
		for _, h := range p.Held {
			if p.Server == args[0] && visible.ShellSafe(h.Title) && !slices.Contains(args[1:], h.Title) {
				titles = append(titles, completion(h.Title, h.State))
			}
		}
	}
	return titles, noFiles
}

func (c pinsVerb) pinsList(ctx context.Context) error {
	all, err := c.allPins(ctx)
	if err != nil {
		return err
	}
	if c.json() {
		if all == nil {
			all = []pinned{}
		}
		return c.printJSON(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.stderr, "no server has been up")
		return nil
	}
	rows := [][]cell{heading("SERVER", "ACCEPTED", "UNREVIEWED", "HELD", "WAITING", "DRIFT")}
	example, unreviewed := "", ""
	for _, p := range all {
		waiting, colour := p.waiting()
		held := strconv.Itoa(len(p.Held) + p.Left)
		if p.Error != "" && p.Accepted+p.Gone+len(p.Held) == 0 {
			held = "all" // its pins cannot be used
		}
		if held != "0" && example == "" {
			example = p.Server
		}
		if p.Unreviewed > 0 && unreviewed == "" {
			unreviewed = p.Server
		}
		rows = append(rows, []cell{{p.Server, ""}, {strconv.Itoa(p.Accepted), ""}, {strconv.Itoa(p.Unreviewed), ""},
			{held, colour}, {waiting, colour}, {p.drift(), ""}})
	}
	c.table(c.stdout, rows)
	if example != "" {
		c.hintAt("pfar pins show " + example)
	}
	if unreviewed != "" {
		c.hintAt("a session that lists what nobody has reviewed becomes raw: read it, pfar pins accept " + unreviewed)
	}
	return nil
}

// drift says in one line what else is not as it was.
func (p pinned) drift() string {
	list := slices.Clone(p.Drift)
	if p.Gone > 0 {
		list = append(list, fmt.Sprintf("%d no longer offered", p.Gone))
	}
	return strings.Join(list, ", ")
}

// maxWaiting is how many definitions one line names.
const maxWaiting = 4

// waiting says in one line what is held and why, and its colour.
func (p pinned) waiting() (string, string) {
	var list []string
	colour := ""
	held := slices.Clone(p.Held)
	// The changed ones before new ones.
	slices.SortStableFunc(held, func(a, b operator.Held) int { return strings.Compare(a.State, b.State) })
	for i, h := range held {
		if h.State == "changed" {
			colour = red
		}
		if i < maxWaiting {
			list = append(list, summary(h.Title, 40)+" "+h.State)
		}
	}
	if more := len(p.Held) + p.Left - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	if p.Error != "" {
		return strings.Join(append([]string{p.Error}, list...), "; "), red
	}
	if colour == "" && len(list) > 0 {
		colour = yellow
	}
	return strings.Join(list, ", "), colour
}

func (c pinsVerb) pinsShow(ctx context.Context, server string, names []string) error {
	p, err := c.pinsOf(ctx, server, names...)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(p)
	}
	if p.Error != "" {
		fmt.Fprintf(c.stdout, "error: %s\n", escape(p.Error, oneLine))
	}
	if len(names) == 0 {
		c.printCounts(p)
	}
	c.printHeld(c.stdout, p.Server, p.Held)
	switch {
	case len(names) > 0:
		for _, d := range p.Descriptors {
			if !p.holds(d) { // or the difference has said it
				c.printDescriptor(c.stdout, p.Server, d)
			}
		}
	case len(p.Held) == 0 && len(p.Descriptors) > 0:
		c.printDescriptors(p.Descriptors)
	}
	switch {
	case slices.ContainsFunc(p.Held, func(h operator.Held) bool { return h.Digest != "" }), len(names) == 0 && p.Unreviewed > 0:
		c.hintAt("pfar pins accept " + p.Server)
	case len(names) > 0 && slices.ContainsFunc(p.Descriptors, p.Unconfirmed):
		c.hintAt("pfar pins accept " + p.Server + " " + names[0] + " has what it claims count")
	}
	return nil
}

func (c pinsVerb) printCounts(p pinned) {
	fmt.Fprintf(c.stdout, "%s: %d accepted, %d unreviewed, %d held, %d no longer offered\n",
		escape(p.Server, oneLine), p.Accepted, p.Unreviewed, len(p.Held)+p.Left, p.Gone)
	if len(p.Drift) > 0 {
		fmt.Fprintf(c.stdout, "drift: %s\n", escape(strings.Join(p.Drift, ", "), oneLine))
	}
	if p.Left > 0 {
		fmt.Fprintf(c.stdout, "%d of the held ones have no room here and cannot be accepted\n", p.Left)
	}
}

// printDescriptors prints what has been accepted in short.
func (c pinsVerb) printDescriptors(list []operator.Known) {
	rows := [][]cell{heading("NAME", "ACCEPTED", "BY", "VERSION", "DIGEST")}
	for _, d := range list {
		title := d.Title
		if d.Gone {
			title += " (not offered)"
		}
		rows = append(rows, []cell{{title, ""}, {minute(d.At), ""}, {d.By, ""}, {summary(d.Version, 24), ""},
			{d.Digest[:min(len(d.Digest), exactly)], ""}})
	}
	c.table(c.stdout, rows)
}

// printHeld prints differences. Their text is a stranger's, made visible by the gateway; here it is not relied on.
func (c pinsVerb) printHeld(w io.Writer, server string, held []operator.Held) {
	for _, h := range held {
		if h.Digest == "" {
			head := c.paint(w, bold, escape(h.Title+" "+h.State, oneLine))
			fmt.Fprintf(w, "\n%s, cannot be accepted: %s\n", head, escape(h.Problem, oneLine))
			continue
		}
		head := c.paint(w, bold, escape(h.Title+"@"+h.Digest[:min(len(h.Digest), exactly)]+" "+h.State, oneLine))
		if h.State == "new" { // of what has changed it would be when its name was
			head += ", first seen " + minute(h.Seen)
		}
		fmt.Fprintf(w, "\n%s\n", head)
		printResults(w, h.Results)
		if h.Suspicious != "" {
			fmt.Fprintln(w, c.paint(w, red, "Inspectors find it suspicious: "+escape(h.Suspicious, oneLine)))
		}
		for line := range strings.Lines(escape(h.Diff, keepLines)) {
			colour := map[byte]string{'+': green, '-': red, '@': cyan}[line[0]]
			fmt.Fprintln(w, c.paint(w, colour, strings.TrimSuffix(line, "\n")))
		}
		if h.Cut > 0 {
			c.printCut(w, server, h.Title)
		}
	}
}

// printCut names the command that shows a definition in full.
func (c pinsVerb) printCut(w io.Writer, server, title string) {
	command := escape(pinsShowLine(server, title)+" --json", oneLine)
	fmt.Fprintln(w, c.paint(w, red, "The text above is cut. To see all of it, run: "+command))
}

// printResults says what clients get of a tool's results, if there is anything to say.
func printResults(w io.Writer, results string) {
	if results != "" {
		fmt.Fprintf(w, "results: %s\n", escape(results, oneLine))
	}
}

func (c pinsVerb) printDescriptor(w io.Writer, server string, d operator.Known) {
	gone := ""
	if d.Gone {
		gone = ", no longer offered"
	}
	head := c.paint(w, bold, escape(d.Title, oneLine))
	how := "accepted (" + escape(d.By, oneLine) + ")"
	if d.By == "first use" {
		how = "first seen" // nobody has looked at it
	}
	fmt.Fprintf(w, "%s, %s at %s%s\n", head, how, minute(d.At), gone)
	c.table(w, [][]cell{
		{{"  version", ""}, {strconv.Quote(d.Version), ""}},
		{{"  SHA-256", ""}, {d.Digest, ""}},
	})
	printResults(w, d.Results)
	if d.Pure {
		fmt.Fprintln(w, "flow-safe: you have said that it only reads, and that the same arguments have the same result")
	}
	fmt.Fprintf(w, "\n%s", escape(d.Text, keepLines))
	if d.Cut > 0 {
		c.printCut(w, server, d.Title)
	}
}

// trust is what the owner says of tools beside accepting them.
type trust struct {
	said bool // else nothing is said
	is   bool // they are pure
}

const trustFlag = "trust-readonly"

// pinsAccept accepts what it shows, by its digests.
func (c pinsVerb) pinsAccept(ctx context.Context, server string, names []string, pure trust, yes bool) error {
	if pure.said && len(names) == 0 {
		return usage("--%s: name the tools", trustFlag).withHint("pfar pins accept %s TOOL --%s", server, trustFlag)
	}
	if err := c.canAsk(yes, "pfar pins show"); err != nil {
		return err
	}
	p, err := c.pinsOf(ctx, server, names...)
	if err != nil {
		return err
	}
	chosen, confirmed, err := p.acceptable(names, pure)
	if err != nil {
		return err
	}
	if len(chosen) == 0 && len(p.Drift) == 0 {
		return c.printAccepted(server, nil)
	}
	show := func(w io.Writer) {
		c.printHeld(w, server, p.Held)
		for _, d := range confirmed {
			fmt.Fprintln(w)
			c.printDescriptor(w, server, d)
		}
	}
	if err := c.ask(ctx, yes, p.question(len(chosen), confirmed)+pure.question(), show); err != nil {
		return err
	}
	var answer struct {
		Accepted []string `json:"accepted"`
	}
	body := map[string]any{"names": chosen}
	if pure.said {
		body["pure"] = pure.is
	}
	if err := c.askServer(ctx, http.MethodPost, server, "/accept", body, &answer); err != nil {
		return err
	}
	unread := func(d operator.Known) bool { return p.NeedsReview(d) && d.Unseen() }
	if slices.ContainsFunc(p.Held, operator.Held.Unseen) || slices.ContainsFunc(p.Descriptors, unread) {
		fmt.Fprintln(c.stderr, "not all definitions could be shown at once: run this again for the rest")
	}
	return c.printAccepted(server, answer.Accepted)
}

// question says what more a yes means.
func (t trust) question() string {
	switch {
	case !t.said:
		return ""
	case t.is:
		return " A yes also says that they only read, and that the same arguments have the same result."
	}
	return " Flows will no longer use their results again."
}

// question asks for n definitions, or, where there are none, for what drifts.
func (p pinned) question(n int, confirmed []operator.Known) string {
	if n == 0 {
		return fmt.Sprintf("Accept this change of %q: %s?", p.Server, strings.Join(p.Drift, ", "))
	}
	cut := 0
	for _, h := range p.Held {
		if h.Digest != "" && h.Cut > 0 && !h.Unseen() {
			cut++
		}
	}
	for _, d := range confirmed {
		if d.Cut > 0 {
			cut++
		}
	}
	if cut > 0 {
		return fmt.Sprintf("Accept %s of %q? Not shown in full: %d", plural.Count(n, "definition"), p.Server, cut)
	}
	return fmt.Sprintf("Accept %s of %q?", plural.Count(n, "definition"), p.Server)
}

// acceptable names what is held by the digests of what is shown, and what nobody has reviewed; if there are names, also
// what pfar's makers alone have, and, if something is said of purity, what a person has. What was named and cannot be
// accepted is an error.
func (p pinned) acceptable(names []string, pure trust) (chosen []string, confirmed []operator.Known, err error) {
	chosen = []string{} // null is no list
	for _, h := range p.Held {
		switch {
		case h.Digest != "" && !h.Unseen():
			chosen = append(chosen, h.Title+"@"+h.Digest)
		case len(names) > 0 && h.Unseen():
			return nil, nil, fail(exitFailed, "cannot accept %q of %q: the list is too long to show it; name fewer", h.Title, p.Server)
		case len(names) > 0:
			return nil, nil, fail(exitFailed, "cannot accept %q of %q: %s", h.Title, p.Server, h.Problem)
		}
	}
	for _, d := range p.Descriptors {
		if len(names) == 0 && p.NeedsReview(d) && !d.Unseen() {
			chosen, confirmed = append(chosen, d.Title+"@"+d.Digest), append(confirmed, d)
		}
	}
	for _, name := range names {
		title, digest := splitPin(name)
		has := ""
		i := slices.IndexFunc(p.Held, func(h operator.Held) bool { return isTitle(h.Title, h.Kind, h.Name, title) })
		k := slices.IndexFunc(p.Descriptors, func(d operator.Known) bool {
			return isTitle(d.Title, d.Kind, d.Name, title) && (p.Unconfirmed(d) || pure.said && !d.Gone)
		})
		switch {
		case i >= 0:
			has = p.Held[i].Digest
		case k >= 0:
			d := p.Descriptors[k]
			has = d.Digest
			chosen, confirmed = append(chosen, d.Title+"@"+d.Digest), append(confirmed, d)
		default:
			return nil, nil, fail(exitNoSuch, "%q of %q is not held: you have accepted it already", title,
				p.Server).withHint("pfar pins show %s", p.Server)
		}
		if !strings.HasPrefix(has, digest) {
			return nil, nil, fail(exitFailed, "%q of %q has another digest than %s now", title, p.Server, digest).withHint("%s",
				pinsShowLine(p.Server, title))
		}
	}
	if p.Error != "" && len(chosen) == 0 {
		return nil, nil, fail(exitFailed, "cannot accept definitions of %q: %s", p.Server,
			p.Error).withHint("pfar pins forget %s begins anew", p.Server)
	}
	return chosen, confirmed, nil
}

func (c pinsVerb) printAccepted(server string, accepted []string) error {
	if c.json() {
		if accepted == nil {
			accepted = []string{}
		}
		return c.printJSON(map[string]any{"server": server, "accepted": accepted})
	}
	if len(accepted) == 0 {
		fmt.Fprintf(c.stderr, "nothing of %q is left to be accepted\n", server)
		return nil
	}
	fmt.Fprintf(c.stdout, "accepted: %s\n", escape(strings.Join(accepted, ", "), oneLine))
	return nil
}

func (c pinsVerb) pinsForget(ctx context.Context, server string, yes bool) error {
	if err := c.canAsk(yes, "pfar pins show"); err != nil {
		return err
	}
	question := fmt.Sprintf("Forget the accepted definitions of %q? pfar accepts its next ones, unless its declaration "+
		"says pins = \"hold\".", server)
	if err := c.ask(ctx, yes, question, func(io.Writer) {}); err != nil {
		return err
	}
	if err := c.askServer(ctx, http.MethodPost, server, "/forget", nil, new(any)); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(map[string]string{"server": server, "result": "forgotten"})
	}
	return nil
}
