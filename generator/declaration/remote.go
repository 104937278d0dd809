package declaration

import (
	"slices"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
)

// refuseHosts refuses hosts of a remote server's secret: it goes to the server's own.
func (d *deliveries) refuseHosts() {
	if d.delivery.hosts != nil {
		d.Problem(d.delivery.hosts.At, "Keys that exclude each other", "The secret of a remote server goes to the host of "+
			"its url, and to no other. Remove hosts.")
	}
}

// checkRemote has each secret of a remote server put into one place of its requests, the header Authorization if the
// file does not say.
func (d *deliveries) checkRemote() {
	host := d.launch.remote
	if host == nil || len(d.auths) == 0 { // what is wrong with url is said already
		return
	}
	if !d.secure(*host) {
		return
	}
	taken := map[broker.Place]string{}
	for i := range d.server.Credentials {
		c := &d.server.Credentials[i]
		if len(c.Places) == 0 {
			c.Places = broker.Standard()
		}
		c.Deliver, c.Hosts = broker.OnWire, []egress.Endpoint{*host}
		at := d.Given["url"].Val.At
		if i := slices.IndexFunc(d.auths, func(f *block.Field) bool { return f.Key == c.Env }); i >= 0 {
			at = d.auths[i].At
		}
		switch p := c.Places[0]; {
		case len(c.Places) > 1 || p.Part == broker.Body:
			d.Problem(at, "Invalid place", "The secret of a remote server stands in one header of its requests, or in the "+
				"query. Write in = [\"header:x-api-key\"], for example.")
		case taken[p] != "":
			d.Problem(at, "Two secrets in one place", "%s and %s both go into %s. Remove one, or write in = [\"header:NAME\"] "+
				"in it.", block.QuoteName(taken[p]), block.QuoteName(c.Env), p)
		default:
			taken[p] = c.Env
		}
	}
}

// secure reports whether a secret may go to the host of url.
func (d *deliveries) secure(host egress.Endpoint) bool {
	at := d.Given["url"].Val.At
	switch {
	case !d.launch.encrypted:
		d.Problem(at, "Secret in the clear", "url begins with http://, which would send the secret unencrypted. Write "+
			"https://, or remove the credentials.")
	case host.Host == "":
		d.Problem(at, "Address as a host", "The host of url is an address. A certificate for a name must prove who gets the "+
			"secret. Write the host's name.")
	default:
		return true
	}
	return false
}

// checkAttached allows a server that runs at a socket one secret, which pfar's adapter sends to it.
func (d *deliveries) checkAttached() {
	if !d.launch.attaches() {
		return
	}
	for i, f := range d.auths {
		switch {
		case d.server.Transport == Pipe:
			d.Problem(f.At, "Keys that exclude each other", "A secret stands in a header of requests, and a pipe has no "+
				"headers. Remove it: the server runs without pfar, and has its secrets from elsewhere.")
		case i > 0:
			d.Problem(f.At, "Two secrets in one place", "Both would stand in the header authorization of requests to the "+
				"server. Remove one.")
		}
	}
}
