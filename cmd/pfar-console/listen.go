package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"golang.org/x/net/netutil"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/loopback"
)

// maxRemote is how many connections from other machines there are at once.
const maxRemote = 128

// listener listens on loopback, or for other machines, with TLS.
func (o options) listener() (net.Listener, error) {
	if !o.remote {
		l, err := loopback.Listen(0)
		if err != nil {
			return nil, err
		}
		return loopback.Limit(l), nil
	}
	pair, err := o.pair()
	if err != nil {
		return nil, err
	}
	l, err := o.socket()
	if err != nil {
		return nil, err
	}
	// HTTP/1.1 alone: the bounds of package loopback are those of its connections.
	config := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
	}
	return tls.NewListener(netutil.LimitListener(newPerAddress(l), maxRemote), config), nil
}

// pair reads the certificate and its key.
func (o options) pair() (pair tls.Certificate, err error) {
	if o.listen != "" {
		pair, err = tls.LoadX509KeyPair(o.certificate, o.key)
	} else {
		var certificate, key []byte
		if certificate, err = units.Credential("certificate"); err != nil {
			return pair, err
		}
		if key, err = units.Credential("key"); err != nil {
			return pair, err
		}
		pair, err = tls.X509KeyPair(certificate, key)
	}
	if err != nil {
		return pair, fmt.Errorf("reading the certificate of the console: %w", err)
	}
	return pair, nil
}

// socket is the one that systemd passes (sd_listen_fds(3)), or a new one.
func (o options) socket() (net.Listener, error) {
	if o.listen != "" {
		return net.Listen("tcp", o.listen)
	}
	files, err := units.Descriptors()
	if err != nil {
		return nil, err
	}
	passed := files[units.FDConsole]
	if len(passed) != 1 {
		return nil, errors.New("systemd passes no socket: start pfar-console.socket, not the service")
	}
	defer passed[0].Close()
	return net.FileListener(passed[0])
}
