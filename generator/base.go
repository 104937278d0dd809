package generator

import (
	"path"
	"slices"
	"strconv"

	"github.com/pfar/pfar/units/sandbox"
)

const (
	minScratch = 1 << 20
	rootSize   = 1 << 20 // directories and links alone
)

// base is the part of the file system that every server has.
type base struct {
	facts
	*view
	covers []string // empty folders over some of the host's
}

// mounts are its own, in order.
func (c *base) mounts() []sandbox.Mount {
	b := c.server.Sandbox
	// All scratch space is memory of the server's; the sizes hold it where no cgroup does.
	scratch := max(b.Memory/4, minScratch)
	root := sandbox.Mount{Kind: sandbox.Tmpfs, Dest: "/", Size: rootSize, Why: "an empty root"}
	if !b.ReadOnlyFS {
		root.Size, root.Why = scratch, "an empty root, scratch space by read_only_fs = false"
	}
	mounts := append([]sandbox.Mount{root}, c.system()...)
	mounts = append(mounts, c.etc()...)
	mounts = append(mounts, c.proc()...)
	mounts = append(mounts,
		sandbox.Mount{Kind: sandbox.Dev, Dest: "/dev", Why: "null, zero, random and the like; no device of the machine"},
		sandbox.Mount{Kind: sandbox.Tmpfs, Dest: "/dev/shm", Size: scratch, Perms: 0o1777, Why: "shared memory of its own"},
	)
	if b.AllowTmp {
		mounts = append(mounts, c.tmp("/tmp", scratch), c.tmp("/var/tmp", scratch))
	} else {
		mounts = append(mounts, sandbox.Mount{Kind: sandbox.Dir, Dest: c.host.real("/var"), Why: "empty"})
	}
	secrets := c.secretFiles()
	why := "empty: no socket of the machine"
	if len(secrets) > 0 {
		why = "no socket of the machine"
	}
	mounts = append(mounts, sandbox.Mount{Kind: sandbox.Dir, Dest: "/run", Why: why})
	mounts = append(mounts, secrets...)
	return append(mounts, c.homeMounts(scratch)...)
}

func (c *base) tmp(at string, size int64) sandbox.Mount {
	f, _ := c.host.resolve(at)
	c.follow(f, "sandbox.allow_tmp")
	return sandbox.Mount{Kind: sandbox.Tmpfs, Dest: f.Real, Size: size, Perms: 0o1777, Why: "private scratch space, gone with the server"}
}

// homeMounts is the server's home: in memory, or its own directory on the host.
func (c *base) homeMounts(size int64) []sandbox.Mount {
	f, _ := c.host.resolve(serverHome) // some hosts have /home elsewhere
	c.follow(f, "sandbox.state")
	home := sandbox.Mount{Kind: sandbox.Tmpfs, Dest: f.Real, Size: size, Perms: 0o700, Why: "the server's home, gone with it"}
	if c.server.Sandbox.State {
		source := path.Join(c.host.real(c.host.StateDir), c.server.Name)
		home = sandbox.Mount{Kind: sandbox.Bind, Source: source, Dest: f.Real, State: true, Why: "the server's home, kept by state = true"}
	}
	// The directory above would get the home's own mode otherwise.
	return []sandbox.Mount{{Kind: sandbox.Dir, Dest: path.Dir(f.Real), Why: "nobody else's home"}, home}
}

// system is /usr and what a host has at the root in its place.
func (c *base) system() []sandbox.Mount {
	var mounts []sandbox.Mount
	if f, err := c.host.resolve("/usr"); err == nil && f.Directory() {
		c.follow(f, "command")
		c.shown = append(c.shown, f.Real)
		mounts = append(mounts, sandbox.Mount{Kind: sandbox.ROOverlay, Source: f.Real, Dest: f.Real,
			Why: "programs and libraries of the machine"})
	}
	for _, dir := range []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"} {
		f, err := c.host.resolve(dir)
		switch {
		case err != nil:
		case len(f.Links) > 0 && f.Links[0].At == dir:
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.Symlink, Source: f.Links[0].Text, Dest: dir,
				Why: "as on the machine"})
		case f.Directory():
			c.shown = append(c.shown, dir)
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.ROOverlay, Source: dir, Dest: dir,
				Why: "programs and libraries of the machine"})
		}
	}
	return mounts
}

// etcOfHost is what name resolution, TLS, fonts and the dynamic linker read. Distributions keep it in different places;
// what is not there is left out. None of it is secret.
func etcOfHost() []string {
	return []string{
		"/etc/alternatives", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/fonts", "/etc/ld.so.cache",
		"/etc/localtime", "/etc/mime.types",
		"/etc/pki/ca-trust/extracted", "/etc/pki/tls/cert.pem", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf",
		"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
	}
}

// etc is small and mostly ours.
func (c *base) etc() []sandbox.Mount {
	uid, gid := strconv.Itoa(sandbox.UID), strconv.Itoa(sandbox.GID)
	data := func(dest, text, why string) sandbox.Mount {
		return sandbox.Mount{Kind: sandbox.Data, Dest: dest, Text: text, Why: why}
	}
	mounts := []sandbox.Mount{
		{Kind: sandbox.Tmpfs, Dest: "/etc", Size: rootSize, Why: "an empty /etc"},
		data("/etc/group", "mcp:x:"+gid+":\nnogroup:x:65534:\n", "the server's group, nobody of the machine"),
		data("/etc/hostname", c.server.Name+"\n", "not the machine's"),
		data("/etc/hosts", "127.0.0.1 localhost "+c.server.Name+"\n::1 localhost ip6-localhost ip6-loopback\n", "loopback alone"),
		data("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n", "no service of the machine"),
		data("/etc/passwd",
			"mcp:x:"+uid+":"+gid+":mcp:"+serverHome+":/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
			"the server's user, nobody of the machine"),
		// Nothing but the server's own loopback can answer.
		data("/etc/resolv.conf", "nameserver 127.0.0.1\n", "no resolver of the machine"),
	}
	bundles := c.bundles()
	for _, p := range etcOfHost() {
		f, err := c.host.resolve(p)
		if err != nil {
			continue
		}
		c.follow(f, "command")
		if sandbox.Below(f.Real, "/etc") || f.Directory() || f.Regular() {
			c.shown = append(c.shown, f.Real)
			if !slices.ContainsFunc(bundles, func(m sandbox.Mount) bool { return m.Dest == f.Real }) {
				mounts = c.addHost(mounts, f.Real)
			}
		}
	}
	return mounts
}

// addHost adds a read-only view of what no earlier one shows.
func (c *base) addHost(mounts []sandbox.Mount, real string) []sandbox.Mount {
	for _, m := range mounts {
		if m.Kind == sandbox.ROOverlay && sandbox.Below(real, m.Dest) {
			return mounts
		}
	}
	if sandbox.Below(real, "/usr") {
		return mounts
	}
	return append(mounts, sandbox.Mount{Kind: sandbox.ROOverlay, Source: real, Dest: real,
		Why: "certificates, time zone or libraries' index of the machine"})
}
