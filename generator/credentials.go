package generator

import (
	"path"
	"slices"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/sandbox"
)

const (
	secretDir = "/run/secrets"
	// What a server trusts that has a brokered credential.
	authorityFile = "/run/ssl/authority.pem" // the authority of its bridge alone
	bundleFile    = "/run/ssl/bundle.pem"    // the host's, and that authority
)

// secretFile is where a server finds a credential that it gets as a file.
func secretFile(name string) string { return path.Join(secretDir, name) }

// secretFiles are the credentials that the server gets as files, and what it is to trust.
func (c facts) secretFiles() []sandbox.Mount {
	var mounts []sandbox.Mount
	for _, k := range c.server.Credentials {
		if k.Deliver == broker.InFile {
			// Programs that read keys from files refuse those that others may read.
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.Data, Dest: secretFile(k.Env), Perms: 0o400, Credential: k.Env,
				Why: "a credential, in memory"})
		}
	}
	if !c.opens() {
		return mounts
	}
	bundle := sandbox.Mount{Kind: sandbox.Data, Dest: bundleFile, Authority: true, Why: "certificates of its egress " +
		"bridge; the machine has none"}
	if all := c.bundles(); len(all) > 0 {
		bundle = sandbox.Mount{Kind: sandbox.Symlink, Source: all[0].Dest, Dest: bundleFile, Why: all[0].Why}
	}
	authority := sandbox.Mount{Kind: sandbox.Data, Dest: authorityFile, Authority: true,
		Why: "the authority of its egress bridge, this server's alone"}
	return append(mounts, authority, bundle)
}

// bundlesOfHost are where programs look for certificates, all of them in one file, by distribution. The first that is
// there is what bundleFile leads to.
func bundlesOfHost() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt",                      // Debian, Arch, Alpine, NixOS
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",       // Fedora
		"/etc/ca-certificates/extracted/tls-ca-bundle.pem",        // Arch
		"/var/lib/ca-certificates/ca-bundle.pem",                  // openSUSE
		"/etc/ssl/ca-bundle.pem",                                  // openSUSE
		"/etc/ssl/cert.pem",                                       // Alpine, Arch
		"/etc/pki/tls/certs/ca-bundle.crt",                        // Fedora
		"/etc/pki/tls/cert.pem",                                   // Fedora
		"/etc/pki/ca-trust/extracted/openssl/ca-bundle.trust.crt", // Fedora
		"/etc/ca-certificates/extracted/ca-bundle.trust.crt",      // Arch
	}
}

// bundles puts others in place of the host's bundles, where the server is to trust its bridge.
func (c facts) bundles() []sandbox.Mount {
	if !c.opens() {
		return nil
	}
	var mounts []sandbox.Mount
	for _, p := range bundlesOfHost() {
		f, err := c.host.resolve(p)
		if err != nil || !f.Regular() || slices.ContainsFunc(mounts, func(m sandbox.Mount) bool { return m.Dest == f.Real }) {
			continue
		}
		mounts = append(mounts, sandbox.Mount{Kind: sandbox.Data, Source: f.Real, Dest: f.Real, Authority: true,
			Why: "certificates of the machine and of its egress bridge"})
	}
	return mounts
}
