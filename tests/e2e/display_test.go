package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// Colours of the page, before somebody clicks on it and after that.
const (
	calm    = 0x2f6b4f
	clicked = 0xb0401c
)

// TestDisplay: what the headed browser of the examples shows is on a display that its operator looks at and clicks on,
// and that no other user of the host gets at.
func TestDisplay(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root
	}
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<title>page</title><body style="background:#%06x"><script>onclick = () => { document.body.style.background = "#%06x" }</script>`, calm, clicked)
	}))
	t.Cleanup(page.Close)
	p := start(t, map[string]string{"browser-headed.hcl": exampleBrowser(t, "browser-headed.hcl", fmt.Sprintf("allowed_domains = [%q]", strings.TrimPrefix(page.URL, "http://")))})
	p.await("the tools of the browser", 2*soon, func(r control.Report) bool { return server(r, "browser-headed").Tools > 0 })
	if out, errs, code := p.command("call", "browser-headed.browser_navigate", "--url", page.URL+"/"); code != 0 || !strings.Contains(out, "Page Title: page") {
		t.Fatalf("the page did not open: %d %s%s", code, errs, out)
	}
	socket := filepath.Join(p.state(), "home", "browser-headed", "display")
	nobodyElse(t, socket)
	v := look(t, socket)
	v.await(t, calm)
	v.click(t)
	v.await(t, clicked)
}

// TestDisplayOfRoots: the commands of pfar-declaration(5) bring the display of root's pfar to one user, and connect to
// it as the server's user.
func TestDisplayOfRoots(t *testing.T) {
	if os.Getuid() != 0 {
		return // root types them
	}
	t.Parallel()
	manual, err := os.ReadFile("../../packaging/man/pfar-declaration.5")
	check(t, err)
	_, recipe, _ := strings.Cut(string(manual), "\ndir=/var/lib/pfar/home/browser\\-headed ")
	recipe, _, found := strings.Cut(recipe, "\nvncviewer ")
	if !found {
		t.Fatal("the manual has no such commands")
	}
	recipe = strings.NewReplacer(`\-`, "-", `\e`, `\`).Replace(recipe)
	const server, viewer = 64_123, "nobody"
	home, runtime := t.TempDir(), t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(home, "display"), Net: "unix"})
	check(t, err)
	defer l.Close()
	check(t, os.Chown(l.Addr().String(), server, server))
	check(t, os.Chown(home, server, server))
	check(t, os.Chmod(home, 0o700))
	check(t, os.Chmod(filepath.Dir(home), 0o755)) // for the server's user

	c := exec.Command("sh", "-euc", "sudo() { [ \"$1\" != -b ] || shift; exec \"$@\"; }\ndir="+home+" "+recipe)
	c.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtime, "USER="+viewer)
	var said bytes.Buffer
	c.Stderr = &said
	check(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() { _ = c.Process.Kill() })
	brought := filepath.Join(runtime, "display")
	var conn net.Conn
	for deadline := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		if conn, err = net.Dial("unix", brought); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v; it says %s", err, said.String())
		}
	}
	defer conn.Close()
	if out, err := exec.Command("stat", "-c", "%U %a", brought).Output(); err != nil || string(out) != viewer+" 600\n" {
		t.Errorf("the socket is %s (%v), want the viewer's alone", out, err)
	}
	_ = l.SetDeadline(time.Now().Add(soon))
	display, err := l.AcceptUnix()
	check(t, err)
	defer display.Close()
	raw, err := display.SyscallConn()
	check(t, err)
	var peer *unix.Ucred
	check(t, raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }))
	check(t, err)
	if peer.Uid != server || peer.Gid != server {
		t.Errorf("user %d and group %d connect, want %d", peer.Uid, peer.Gid, server)
	}
	_, err = io.WriteString(display, "RFB 003.008\n")
	check(t, err)
	got := make([]byte, 12)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "RFB 003.008\n" {
		t.Errorf("the viewer reads %q, %v", got, err)
	}
	conn.Close()
	display.Close()
	<-ended
}

// nobodyElse wants a socket to be closed to another user, for whom curl does not even connect.
func nobodyElse(t *testing.T, socket string) {
	t.Helper()
	info, err := os.Stat(filepath.Dir(socket))
	check(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the display has mode %v", info.Mode())
	}
	if os.Getuid() != 0 {
		return // nobody but root can be another user
	}
	const refused = 7 // CURLE_COULDNT_CONNECT
	for _, uid := range []uint32{0, ordinary} {
		c := exec.Command("curl", "--silent", "--max-time", "5", "--unix-socket", socket, "http://display/")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		var exit *exec.ExitError
		if err := c.Run(); !errors.As(err, &exit) || (exit.ExitCode() == refused) != (uid != 0) {
			t.Errorf("curl to the display as uid %d: %v", uid, err)
		}
	}
}

// viewer is a client of RFB (RFC 6143) that knows no more than a test needs: no password, pixels as they are.
type viewer struct {
	net.Conn
	width, height uint16
}

// look connects to a display.
func look(t *testing.T, socket string) *viewer {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(soon)))
	v := &viewer{Conn: conn}
	if version := v.take(t, 12); string(version) != "RFB 003.008\n" {
		t.Fatalf("the display speaks %q", version)
	}
	v.put(t, []byte("RFB 003.008\n"))
	const none = 1
	if security := v.take(t, int(v.take(t, 1)[0])); !bytes.Contains(security, []byte{none}) {
		t.Fatalf("the display wants security of types %v", security)
	}
	v.put(t, []byte{none})
	if result := binary.BigEndian.Uint32(v.take(t, 4)); result != 0 {
		t.Fatalf("the display refuses: %d", result)
	}
	v.put(t, []byte{1}) // shared with other viewers
	greeting := v.take(t, 24)
	v.width, v.height = binary.BigEndian.Uint16(greeting), binary.BigEndian.Uint16(greeting[2:])
	v.take(t, int(binary.BigEndian.Uint32(greeting[20:]))) // its name
	// SetPixelFormat: 32 bits, little endian, red, green and blue of 8 bits. SetEncodings: raw.
	v.put(t, []byte{0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0})
	v.put(t, []byte{2, 0, 0, 1, 0, 0, 0, 0})
	return v
}

func (v *viewer) take(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(v, b); err != nil {
		t.Fatalf("reading from the display: %v", err)
	}
	return b
}

func (v *viewer) put(t *testing.T, b []byte) {
	t.Helper()
	_, err := v.Write(b)
	check(t, err)
}

// await returns when a place of the display has a colour. The display says when anything changes. The place is left of
// the middle, where the pointer is.
func (v *viewer) await(t *testing.T, colour uint32) {
	t.Helper()
	check(t, v.SetDeadline(time.Now().Add(soon)))
	var last uint32
	defer func() {
		if t.Failed() {
			t.Logf("the display, %dx%d, shows #%06x, not #%06x", v.width, v.height, last, colour)
		}
	}()
	for incremental := byte(0); last != colour; incremental = 1 {
		request := []byte{3, incremental, 0, 0, 0, 0} // FramebufferUpdateRequest, from 0, 0 on
		v.put(t, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(request, v.width), v.height))
		if pixel, ok := v.update(t); ok {
			last = pixel
		}
	}
}

// update reads until the display has sent an update, and returns the pixel that await is about if it is in there.
func (v *viewer) update(t *testing.T) (pixel uint32, ok bool) {
	t.Helper()
	for {
		switch kind := v.take(t, 1)[0]; kind {
		case 0: // FramebufferUpdate
			for range binary.BigEndian.Uint16(v.take(t, 3)[1:]) {
				head := v.take(t, 12)
				var r [4]int // x, y, width, height
				for i := range r {
					r[i] = int(binary.BigEndian.Uint16(head[2*i:]))
				}
				if encoding := binary.BigEndian.Uint32(head[8:]); encoding != 0 {
					t.Fatalf("the display sends encoding %d", encoding)
				}
				pixels := v.take(t, 4*r[2]*r[3])
				x, y := int(v.width)/4-r[0], int(v.height)/2-r[1]
				if x >= 0 && y >= 0 && x < r[2] && y < r[3] {
					pixel, ok = binary.LittleEndian.Uint32(pixels[4*(y*r[2]+x):])&0xffffff, true
				}
			}
			return pixel, ok
		case 2: // Bell
		case 3: // ServerCutText
			v.take(t, int(binary.BigEndian.Uint32(v.take(t, 7)[3:])))
		default:
			t.Fatalf("the display sends a message of type %d", kind)
		}
	}
}

// click presses the left button in the middle of the display, and lets it go.
func (v *viewer) click(t *testing.T) {
	t.Helper()
	for _, buttons := range []byte{0, 1, 0} {
		v.put(t, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16([]byte{5, buttons}, v.width/2), v.height/2))
	}
}
