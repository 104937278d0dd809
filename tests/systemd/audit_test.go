package systemd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

const (
	auditDir     = "/var/lib/pfar/audit"
	gatewayChain = auditDir + "/gateway-000001.jsonl"
)

// attacks are what a gateway that was taken over would do to its file, with the descriptor that it has and without. It
// runs with the descriptor 3, opened as pfard opens it, and prints what was not refused.
const attacks = `
use Fcntl;
my $f = shift;
open(F, ">>&=", 3) or die "no descriptor: $!";
sub tried { my ($what, $done) = @_; print "$what\n" if $done; }
tried("O_APPEND taken away", fcntl(F, F_SETFL, O_WRONLY));
tried("truncated", truncate(F, 0));
my $none = pack("q", 0);
tried("attribute taken away", ioctl(F, 0x40086602, $none));
for my $path ($f, "/proc/self/fd/3") {
	tried("opened to write: $path", open(G, "+<", $path));
	tried("opened and truncated: $path", open(G, ">", $path));
	tried("opened to append: $path", open(G, ">>", $path));
	tried("truncated: $path", truncate($path, 0));
}
tried("read", open(G, "<", $f));
tried("removed", unlink($f));
tried("renamed", rename($f, "$f.old"));
tried("another one", open(G, ">", "$f.new"));
tried("linked over", link("/etc/passwd", $f));
tried("directory opened", opendir(D, "` + auditDir + `"));
tried("mode", chmod(0666, $f));
sysseek(F, 0, 0);
syswrite(F, "{\"seq\":1}\n") or die "it cannot even append: $!";
`

// TestAuditIsAppendOnly is the gateway's user, with what the gateway has.
func TestAuditIsAppendOnly(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)
	if status := m.Run(t, "pfar", "status"); strings.Contains(status, "can be changed by whoever") {
		t.Fatalf("the files have no append-only attribute here: %s", status)
	}
	m.Run(t, "pfar", "audit", "verify")
	before := m.Shell(t, "cat "+gatewayChain)
	m.Put(t, "/root/attacks", attacks, 0o644)
	if done := m.Shell(t, "exec 3>>"+gatewayChain+"; runuser -u pfar -- perl -e \"$(cat /root/attacks)\" "+gatewayChain); done != "" {
		t.Errorf("the gateway's user has done:\n%s", done)
	}
	// Not even root, before it takes the attribute away.
	if r := m.Try("sh", "-c", "rm -f "+gatewayChain+" || echo x >"+gatewayChain+" || mv "+gatewayChain+" /root/"); r.Code == 0 {
		t.Error("root has changed it")
	}
	if after := m.Shell(t, "cat "+gatewayChain); after != before+"{\"seq\":1}\n" {
		t.Errorf("it was %q, and is %q", before, after)
	}
	if modes := m.Shell(t, "stat -c '%a %U %G %n' "+auditDir+" "+auditDir+"/*"); modes != fmt.Sprintf("750 root pfar-admin %s\n640 root pfar-admin %s\n640 root pfar-admin %s/pfard-000001.jsonl\n", auditDir, gatewayChain, auditDir) {
		t.Errorf("modes: %s", modes)
	}
	if r := m.Try("pfar", "audit", "verify"); r.Code != 0 || !strings.Contains(r.Stdout, "behind the last record are none") {
		t.Errorf("a line that was put behind the last: %s", r)
	}
	m.Run(t, "systemctl", "restart", "pfar-gateway")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "audit", "verify"); r.Code != 0 || !strings.Contains(r.Stdout, "11 bytes of a record that was cut") {
			return errors.New(r.String())
		}
		return nil
	})
}

// TestAudit: what is done is recorded, by both, through kills and a start of the machine, and what is changed is found.
func TestAudit(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("allowed_domains = [\"nowhere.example\"]"), 0o644)
	becomes(t, m, "hello", control.Running)
	m.Shell(t, "echo -n hunter2-hunter2 | pfar vault set some_token")
	m.Run(t, "pfar", "pins", "forget", "hello", "--yes")
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfar-gateway", "pfard")
	becomes(t, m, "hello", control.Running)
	m.Reboot(t)
	becomes(t, m, "hello", control.Running)
	bed.Eventually(t, soon, func() error { // once the journal has what is told about once a minute, and at the end
		r := m.Try("pfar", "audit", "verify")
		if r.Code != 0 || strings.Count(r.Stdout, "whole") != 2 || strings.Count(r.Stdout, "compared with the journal") != 2 {
			return errors.New(r.String())
		}
		return nil
	})
	shown := m.Run(t, "pfar", "audit")
	for _, want := range []string{"declaration  hello", "starting → running", "vault        store  some_token  uid 0  new", "pin          forget  hello", "gateway"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	if strings.Contains(m.Shell(t, "cat "+auditDir+"/*"), "hunter2") {
		t.Error("it has a secret's value")
	}
	if r := m.Try("runuser", "-u", "nobody", "--", "pfar", "audit"); r.Code == 0 {
		t.Errorf("anybody may read it: %s", r)
	}
	m.Run(t, "cp", "-a", auditDir, "/root/old")
	m.Run(t, "systemctl", "restart", "pfard") // which tells where it ends
	m.Shell(t, "systemctl stop pfar.target pfar-base.service pfard.service pfard-*.socket pfar-gateway.socket pfar-gateway.service; cd "+auditDir+"; mv /root/old /root/audit; f=$(ls pfard-*); perl -e 'my $n = pack(\"q\", 0); ioctl(STDIN, 0x40086602, $n) or die $!' <$f; cat /root/audit/$f >$f")
	if r := m.Try("pfar", "audit", "verify"); r.Code != 1 || !strings.Contains(r.Stdout, "cut") {
		t.Errorf("an old copy was put back: %s", r)
	}
}
