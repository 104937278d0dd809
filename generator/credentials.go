package generator

import (
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/plan"
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
func (c *compiler) secretFiles() []sandbox.Mount {
	var mounts []sandbox.Mount
	for _, k := range c.server.Credentials {
		if k.Deliver == broker.InFile {
			// Programs that read keys from files refuse those that others may read.
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.Data, Dest: secretFile(k.Env), Perms: 0o400, Credential: k.Env, Why: "a credential, in memory"})
		}
	}
	if !c.brokers() {
		return mounts
	}
	bundle := sandbox.Mount{Kind: sandbox.Data, Dest: bundleFile, Authority: true, Why: "certificates of its egress bridge; the host has none"}
	if all := c.bundles(); len(all) > 0 {
		bundle = sandbox.Mount{Kind: sandbox.Symlink, Source: all[0].Dest, Dest: bundleFile, Why: all[0].Why}
	}
	authority := sandbox.Mount{Kind: sandbox.Data, Dest: authorityFile, Authority: true, Why: "the authority of its egress bridge, this server's alone"}
	return append(mounts, authority, bundle)
}

// brokers reports whether the bridge opens connections of this server.
func (c *compiler) brokers() bool {
	return slices.ContainsFunc(c.server.Credentials, func(k declaration.Credential) bool { return k.Deliver == broker.OnWire })
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
func (c *compiler) bundles() []sandbox.Mount {
	if !c.brokers() {
		return nil
	}
	var mounts []sandbox.Mount
	for _, p := range bundlesOfHost() {
		f, err := c.host.resolve(p)
		if err != nil || !f.Regular() || slices.ContainsFunc(mounts, func(m sandbox.Mount) bool { return m.Dest == f.Real }) {
			continue
		}
		mounts = append(mounts, sandbox.Mount{Kind: sandbox.Data, Source: f.Real, Dest: f.Real, Authority: true, Why: "certificates of the host and of its egress bridge"})
	}
	return mounts
}

// trust has programs that bring certificates of their own read those that the bridge shows them. They ask for a bundle
// in place of theirs, or, some, for what is to be added.
func (c *compiler) trust(declared []sandbox.Env) []sandbox.Env {
	if !c.brokers() {
		return nil
	}
	var own []sandbox.Env
	for _, name := range []string{"NODE_EXTRA_CA_CERTS", "DENO_CERT"} {
		own = append(own, sandbox.Env{Name: name, Value: authorityFile})
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO",
		"NIX_SSL_CERT_FILE", "HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "PERL_LWP_SSL_CA_FILE",
	} {
		own = append(own, sandbox.Env{Name: name, Value: bundleFile})
	}
	for _, e := range own {
		if slices.ContainsFunc(declared, func(d sandbox.Env) bool { return d.Name == e.Name }) {
			key := "env." + e.Name
			if slices.ContainsFunc(c.server.Credentials, func(k declaration.Credential) bool { return k.Env == e.Name }) {
				key = "auth." + e.Name
			}
			c.warn(key, "Bridge not trusted", "The bridge opens the connections to the hosts of brokered credentials, and shows certificates that %s would name, did the declaration not set it: programs that heed it refuse these hosts. Remove it.", e.Name)
		}
	}
	return own
}

// delivery says how the server gets the value, "" if by the variable itself.
func delivery(c plan.Credential) string {
	switch c.Deliver {
	case broker.InFile:
		return "as the file " + secretFile(c.Name)
	case broker.OnWire:
		return "placeholder inside; the bridge puts the value " + wire(c)
	}
	return ""
}

// wire says where a brokered value goes.
func wire(c plan.Credential) string {
	var places, hosts []string
	for _, p := range c.Places {
		switch p.Part {
		case broker.Header:
			places = append(places, "the field "+quote(p.Name))
		case broker.Query:
			places = append(places, "the parameter "+quote(p.Name))
		default:
			places = append(places, "the "+string(p.Part))
		}
	}
	for _, h := range c.Hosts {
		hosts = append(hosts, h.String())
	}
	return "into " + strings.Join(places, " or ") + " of requests to " + strings.Join(hosts, ", ")
}
