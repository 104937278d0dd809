package generator

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/sandbox"
)

// environment is all that the server finds: what is true inside, and what its declaration gives. found are the
// directories of programs that are looked up inside.
func (c facts) environment(found []string, f *findings) []sandbox.Env {
	proxy := "http://127.0.0.1:" + strconv.Itoa(egress.ProxyPort)
	const local = "localhost,127.0.0.1,::1"
	own := []sandbox.Env{
		{Name: "PATH", Value: strings.Join(slices.Concat(found, standardPath()), ":")},
		{Name: "HOME", Value: serverHome},
		{Name: "USER", Value: "mcp"},
		{Name: "LOGNAME", Value: "mcp"},
		{Name: "SHELL", Value: "/bin/sh"},
		{Name: "LANG", Value: "C.UTF-8"},
		// A courtesy to programs that ask; those that do not have no way out all the same.
		{Name: "HTTP_PROXY", Value: proxy},
		{Name: "HTTPS_PROXY", Value: proxy},
		{Name: "NO_PROXY", Value: local},
		{Name: "http_proxy", Value: proxy},
		{Name: "https_proxy", Value: proxy},
		{Name: "no_proxy", Value: local},
		{Name: "NODE_USE_ENV_PROXY", Value: "1"}, // node's fetch reads the others only then, from 22.21 on
	}
	if c.server.Sandbox.AllowTmp {
		own = append(own, sandbox.Env{Name: "TMPDIR", Value: "/tmp"})
	}
	var declared []sandbox.Env
	for _, v := range c.server.Env {
		declared = append(declared, sandbox.Env{Name: v.Name, Value: v.Value})
	}
	for _, k := range c.server.Credentials {
		switch k.Deliver {
		case broker.InEnvironment, broker.OnWire: // the value, or its placeholder: pfard fills it in
			declared = append(declared, sandbox.Env{Name: k.Env, Credential: k.Env})
		case broker.InFile:
			declared = append(declared, sandbox.Env{Name: k.Env, Value: secretFile(k.Env)})
		default: // no variable: it would hold the value
			f.fail("auth."+k.Env, "Unknown delivery", `It has a delivery that pfar does not know. Write deliver = "env".`)
		}
	}
	own = append(own, c.trust(declared, f)...)
	slices.SortStableFunc(declared, func(a, b sandbox.Env) int { return strings.Compare(a.Name, b.Name) })
	// Which of these may be changed at all, the declaration's reader decides.
	own = slices.DeleteFunc(own, func(e sandbox.Env) bool {
		return slices.ContainsFunc(declared, func(d sandbox.Env) bool { return d.Name == e.Name })
	})
	return append(own, declared...)
}

func standardPath() []string {
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

// trust has programs that bring certificates of their own read those that the bridge shows them. They ask for a bundle
// in place of theirs, or, some, for what is to be added.
func (c facts) trust(declared []sandbox.Env, f *findings) []sandbox.Env {
	if !c.opens() {
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
			f.warn(key, "Bridge not trusted", "The bridge opens the connections to the hosts of brokered credentials, and "+
				"shows certificates that %s would name, did the declaration not set it: programs that heed it refuse these "+
				"hosts. Remove it.", e.Name)
		}
	}
	return own
}
