package declaration

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
)

const maxArgs = 512

var (
	pinned   = regexp.MustCompile(`.(@|==)v?[0-9]+\.[0-9]`)
	unpinned = regexp.MustCompile(`(.)@[^/@]*$`)
)

func (d *launch) args(f *block.Field) {
	for _, n := range d.TextsTo(maxArgs, f, "Too many arguments", "Give the server a file to read.") {
		switch {
		case strings.ContainsRune(n.Text, 0):
			d.Problem(n.At, "NUL in a value", "An argument cannot contain a NUL. Remove it.")
			continue
		case len(n.Text) > maxArg:
			d.Problem(n.At, "Too long", "The argument has %d bytes, and the kernel passes on %d. Give the server a "+
				"file to read.", len(n.Text), maxArg)
			continue
		}
		d.secretArgument(n)
		d.PlaceEntry(f.Key, len(d.server.Args), n.At)
		d.server.Args = append(d.server.Args, n.Text)
	}
}

// reveals are the words by which a shell's script puts a variable into the arguments of another program.
var reveals = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)`)

// secretArgument warns of a secret in an argument: the kernel shows the arguments of every process to every user of the
// host (/proc/PID/cmdline, proc_pid_cmdline(5)), those inside of a sandbox as well. So there is no reference to the
// vault here either.
func (d *launch) secretArgument(n *block.Node) {
	const remedy = " Store it with `pfar vault set KEY` and give it in auth = { NAME = \"vault:KEY\" }, as a variable " +
		"or a file, if the server can read one."
	switch _, _, reference := reference(n); {
	case strings.HasPrefix(n.Text, "vault:") && reference:
		d.Caution(n.At, "Reference in args", "It is passed on as it stands: every user of this machine can read arguments "+
			"while the server runs, so the vault gives nothing to them. Write auth = { NAME = %s } with the variable that the "+
			"server reads.", block.Quote(n.Text))
	case block.TokenPrefix(n.Text) || block.TokenPrefix(n.Text[strings.LastIndexByte(n.Text, '=')+1:]):
		d.Hidden.Add(n.At)
		d.Caution(n.At, "Secret in args", "The argument looks like a token, and every user of this machine can read the "+
			"arguments of a process."+remedy)
	case block.PasswordWithin(n.Text):
		d.Hidden.Add(n.At)
		d.Caution(n.At, "Secret in args", "The address has a password in it, and every user of this machine can read the "+
			"arguments of a process."+remedy)
	}
}

// checkShell warns of a script that has a shell put a credential into another program's arguments.
func (d *launch) checkShell() {
	f, ok := d.Given["args"]
	i := slices.Index(d.server.Args, "-c")
	if name := path.Base(d.server.Command); !ok || i < 0 || i+1 >= len(d.server.Args) ||
		!slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh", "busybox"}, name) {
		return
	}
	for _, m := range reveals.FindAllStringSubmatch(d.server.Args[i+1], -1) {
		if slices.ContainsFunc(d.server.Credentials, func(c Credential) bool { return c.Env == m[1] && c.Deliver == broker.InEnvironment }) {
			d.Caution(d.server.Place(f.Key+"["+strconv.Itoa(i+1)+"]"), "Secret in args", "The shell puts %s where every user "+
				"of this machine can read it, if it becomes an argument; and pfar cannot tell which package runs, so that "+
				"nothing is known of its tools. Have the server read the variable, and write service = \"NAME\" if it is of a "+
				"known service.", block.Quote(m[1]))
			return
		}
	}
}

// checkPinned warns of a package that is another program from one day to the next.
func (d *launch) checkPinned() {
	f, ok := d.Given["args"]
	if d.server.Package != "" {
		return
	}
	if runner := path.Base(d.server.Command); !ok || !slices.Contains([]string{"npx", "bunx", "pnpx", "uvx"}, runner) {
		return
	}
	for i, a := range d.server.Args {
		switch {
		case a == "" || strings.HasPrefix(a, "-") || block.SecretWithin(a):
			continue
		case !pinned.MatchString(a):
			d.Caution(d.server.Place(f.Key+"["+strconv.Itoa(i)+"]"), "Version not pinned", "%s runs the version that the "+
				"registry has at that time. Write the version too, such as %s.", path.Base(d.server.Command),
				block.Quote(unpinned.ReplaceAllString(a, "$1")+"@1.2.3"))
		}
		return
	}
}
