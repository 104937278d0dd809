package main

import "strings"

type hostile struct{ raw, status, reason string }

func withHost(line, fields string) string {
	return line + "\r\nHost: api.allowed.test\r\n" + fields + "\r\n"
}

// hostileRequests are refused wherever they stand in a connection to api.allowed.test.
func hostileRequests() []hostile {
	get := func(fields string) string { return withHost("GET / HTTP/1.1", fields) }
	post := func(fields, body string) string { return withHost("POST / HTTP/1.1", fields) + body }
	host := func(value string) string { return "GET / HTTP/1.1\r\nHost: " + value + "\r\n\r\n" }
	line := func(line string) string { return withHost(line, "") }
	const shake = "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
	return []hostile{
		// Another host.
		{host("evil.test"), "403", "host-contradicts"}, {host("evil.test:80"), "403", "host-contradicts"},
		{host("api.allowed.test:443"), "403", "host-contradicts"}, {host("api.allowed.test:8080"), "403", "host-contradicts"},
		{host("allowed.test"), "403", "host-contradicts"}, {host("x.api.allowed.test"), "403", "host-contradicts"},
		{host("api.allowed.test.evil.test"), "403", "host-contradicts"}, {host("evilapi.allowed.test"), "403", "host-contradicts"},
		{host("93.184.216.34"), "403", "host-contradicts"}, {host("127.0.0.1"), "403", "host-contradicts"}, {host("[::1]"), "403", "host-contradicts"},
		{host("169.254.169.254"), "403", "host-contradicts"}, {host("localhost"), "403", "host-contradicts"}, {host("*"), "403", "host-contradicts"},
		{host("api..allowed.test"), "403", "host-contradicts"}, {host("api.allowed.test.."), "403", "host-contradicts"},
		{host("api%2eallowed.test"), "403", "host-contradicts"}, {host("api.allowed.test,evil.test"), "403", "host-contradicts"},
		{host("xn--pi-7sb.allowed.test"), "403", "host-contradicts"},
		{host("api.allowed.test evil.test"), "400", "bad-request"}, {host("api.allowed.test, evil.test"), "400", "bad-request"},
		{host("evil.test@api.allowed.test"), "400", "bad-request"}, {host("api.allowed.test@evil.test"), "400", "bad-request"},
		{host("api.allowed.test/evil.test"), "400", "bad-request"}, {host("evil.test#api.allowed.test"), "400", "bad-request"},
		{host("evil.test\\api.allowed.test"), "400", "bad-request"}, {host("http://api.allowed.test"), "400", "bad-request"},
		{host("api.allowed.test:"), "400", "bad-request"}, {host("api.allowed.test:080"), "400", "bad-request"}, {host("api.allowed.test:65616"), "400", "bad-request"},
		{host("api.allowed.test:80:80"), "400", "bad-request"}, {host("[api.allowed.test]"), "400", "bad-request"}, {host(""), "400", "bad-request"}, {host(":80"), "400", "bad-request"},
		{host("\u0430pi.allowed.test"), "400", "bad-request"}, {host("ａpi.allowed.test"), "400", "bad-request"}, {host("api。allowed.test"), "400", "bad-request"},
		{host("api.allowed.test\xff"), "400", "bad-request"}, {host("\tapi.allowed.test"), "400", "bad-request"}, {host("api.allowed.test\x00"), "400", "bad-request"}, {host("api.allowed.test\x0b"), "400", "bad-request"},

		// No host, two hosts, a host in disguise.
		{"GET / HTTP/1.1\r\n\r\n", "400", "bad-request"}, {"GET / HTTP/1.0\r\n\r\n", "400", "bad-request"}, {"GET / HTTP/1.1\r\nX-Forwarded-Host: api.allowed.test\r\n\r\n", "400", "bad-request"},
		{get("Host: api.allowed.test\r\n"), "400", "bad-request"}, {get("Host: evil.test\r\n"), "400", "bad-request"}, {get("hOST: evil.test\r\n"), "400", "bad-request"},
		{"GET / HTTP/1.1\r\nHost: evil.test\r\nHost: api.allowed.test\r\n\r\n", "400", "bad-request"},
		{"GET / HTTP/1.1\r\nHost : api.allowed.test\r\n\r\n", "400", "bad-request"}, {"GET / HTTP/1.1\r\n Host: api.allowed.test\r\n\r\n", "400", "bad-request"},
		{"GET / HTTP/1.1\r\nX: y\r\n Host: evil.test\r\nHost: api.allowed.test\r\n\r\n", "400", "bad-request"},
		{"GET / HTTP/1.1\r\nHost:\r\n api.allowed.test\r\n\r\n", "400", "bad-request"}, {get("X: y\rHost: evil.test\r\n"), "400", "bad-request"},
		{get("X: y\nHost: evil.test\r\n"), "400", "bad-request"}, {get("X: y\n\nGET / HTTP/1.1\r\nHost: evil.test\r\n"), "400", "bad-request"},
		{get("Host\x00: evil.test\r\n"), "400", "bad-request"}, {get("Connection: close, Host\r\n"), "400", "bad-request"}, {get("Connection: host\r\n"), "400", "bad-request"},
		{get(": evil.test\r\n"), "400", "bad-request"}, {get("X\r\n"), "400", "bad-request"}, {get("H st: x\r\n"), "400", "bad-request"}, {get("(Host): x\r\n"), "400", "bad-request"},

		// Targets.
		{line("GET http://evil.test/ HTTP/1.1"), "403", "host-contradicts"}, {line("GET http://api.allowed.test:81/ HTTP/1.1"), "403", "host-contradicts"},
		{"GET http://api.allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403", "host-contradicts"}, {"GET http://api.allowed.test/ HTTP/1.1\r\n\r\n", "400", "bad-request"},
		{"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403", "host-contradicts"}, {"GET http://api.allowed.test:81/ HTTP/1.1\r\nHost: api.allowed.test:81\r\n\r\n", "403", "host-contradicts"},
		{line("GET http://evil.test@api.allowed.test/ HTTP/1.1"), "400", "bad-authority"}, {line("GET http://evil.test\\@api.allowed.test/ HTTP/1.1"), "400", "bad-request"},
		{line("GET http://evil.test#@api.allowed.test/ HTTP/1.1"), "400", "bad-request"}, {line("GET http:///evil.test/ HTTP/1.1"), "400", "bad-authority"},
		{line("GET http://[::1]/ HTTP/1.1"), "403", "host-contradicts"}, {line("GET http://evil.test?api.allowed.test HTTP/1.1"), "403", "host-contradicts"},
		{line("GET https://api.allowed.test/ HTTP/1.1"), "400", "bad-request"}, {line("GET ws://api.allowed.test/ HTTP/1.1"), "400", "bad-request"}, {line("GET http:/api.allowed.test/ HTTP/1.1"), "400", "bad-request"},
		{line("GET api.allowed.test HTTP/1.1"), "400", "bad-request"}, {line("GET * HTTP/1.1"), "400", "bad-request"}, {line("OPTIONS ** HTTP/1.1"), "400", "bad-request"}, {line("GET evil.test:80 HTTP/1.1"), "400", "bad-request"},
		{line("GET  HTTP/1.1"), "400", "bad-request"}, {line("GET /a b HTTP/1.1"), "400", "bad-request"}, {line("GET /\ta HTTP/1.1"), "400", "bad-request"}, {line("GET /\xc3\xbc HTTP/1.1"), "400", "bad-request"},
		{line("GET /#a HTTP/1.1"), "400", "bad-request"}, {line("GET /\\evil.test HTTP/1.1"), "400", "bad-request"}, {line("GET / HTTP/1.1 HTTP/1.1"), "400", "bad-request"},

		// First lines.
		{line("GET /"), "400", "bad-request"}, {line("GET / HTTP/1.1 "), "400", "bad-request"}, {line("GET  / HTTP/1.1"), "400", "bad-request"}, {line("GET\t/\tHTTP/1.1"), "400", "bad-request"},
		{line("GET / HTTP/2.0"), "505", "bad-version"}, {line("GET / HTTP/1.2"), "505", "bad-version"}, {line("GET / HTTP/01.1"), "505", "bad-version"}, {line("GET / http/1.1"), "400", "bad-request"}, {line("GET / ICY/1.1"), "400", "bad-request"},
		{line(" GET / HTTP/1.1"), "400", "bad-request"}, {line("get / HTTP/1.1"), "400", "bad-request"}, {"\r\n" + getIt, "400", "bad-request"}, {"\n" + getIt, "400", "bad-request"}, {"\x00" + getIt, "400", "bad-request"},
		{line("GE(T / HTTP/1.1"), "400", "bad-request"}, {"GET / HTTP/1.1\nHost: api.allowed.test\n\n", "400", "bad-request"}, {"\xef\xbb\xbf" + getIt, "400", "bad-request"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01", "400", "bad-request"}, {"\x05\x01\x00", "400", "bad-request"}, {"SSH-2.0-OpenSSH\r\n\r\n", "400", "bad-request"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505", "bad-version"}, {line("PRI * HTTP/1.1"), "501", "method-not-allowed"}, {line("TRACE / HTTP/1.1"), "501", "method-not-allowed"}, {line("TRACK / HTTP/1.1"), "501", "method-not-allowed"},
		{"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "501", "method-not-allowed"}, {line("CONNECT api.allowed.test:80 HTTP/1.1"), "501", "method-not-allowed"},

		// Framing.
		{post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+getIt), "400", "bad-request"}, {post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"), "400", "bad-request"}, {post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 5, 5\r\n", "hello"), "400", "bad-request"},
		{post("Content-Length: +5\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: -1\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 0x5\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 5 \t\r\n", "hello"), "400", "bad-request"},
		{post("Content-Length: 010\r\n", "hellohello"), "400", "bad-request"}, {post("Content-Length: 5;\r\n", "hello"), "400", "bad-request"}, {post("Content-Length:\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: ５\r\n", "hello"), "400", "bad-request"},
		{post("Content-Length: 9223372036854775808\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 18446744073709551621\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 1e1\r\n", "hello"), "400", "bad-request"},
		{post("Content_Length: 5\r\n", "hello"), "400", "bad-request"}, {post("Transfer_Encoding: chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Content-Length: 5\r\nTransfer_Encoding: chunked\r\n", "hello"), "400", "bad-request"},
		{post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Transfer-Encoding: identity\r\n", ""), "400", "bad-request"}, {post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Transfer-Encoding: chun\u212aed\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding:\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{withHost("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n", "400", "bad-request"}, {post("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Connection: close, content-length\r\nContent-Length: 5\r\n", "hello"), "400", "bad-request"}, {post("Transfer-Encoding: chunked\r\nTrailer: Host\r\n", "0\r\nHost: evil.test\r\n\r\n"), "400", "bad-request"},
		{post("Expect: 100-continue, 200-ok\r\nContent-Length: 5\r\n", "hello"), "400", "bad-request"}, {post("Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", "hello"), "400", "bad-request"},

		// Other protocols.
		{get("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), "400", "upgrade"}, {get("Upgrade: h2c\r\n"), "400", "upgrade"}, {get("HTTP2-Settings: AAMAAABkAAQAAP__\r\n"), "400", "upgrade"},
		{get("Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n"), "400", "upgrade"}, {get(shake + "Upgrade: websocket, h2c\r\n"), "400", "upgrade"}, {get(shake + "Upgrade: websocket\r\nUpgrade: h2c\r\n"), "400", "upgrade"},
		{get(shake + "Upgrade: web\u017focket\r\n"), "400", "bad-request"}, {get(shake + "Upgrade: websocket\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), "400", "upgrade"},
		{get("Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"), "400", "upgrade"}, {get("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"), "400", "upgrade"},
		{get("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Version: 8\r\n"), "400", "upgrade"}, {get(shake + "Upgrade: websocket\r\nContent-Length: 5\r\n"), "400", "upgrade"},
		{withHost("POST / HTTP/1.1", shake+"Upgrade: websocket\r\n"), "400", "upgrade"}, {withHost("GET / HTTP/1.0", shake+"Upgrade: websocket\r\n"), "400", "upgrade"},
		{"GET / HTTP/1.1\r\nHost: evil.test\r\n" + shake + "Upgrade: websocket\r\n\r\n", "403", "host-contradicts"},

		// Bounds.
		{get("X: " + strings.Repeat("y", 17<<10) + "\r\n"), "431", "head-too-large"}, {get(strings.Repeat("X: y\r\n", 64)), "431", "head-too-large"}, {"GET /" + strings.Repeat("a", 17<<10), "431", "head-too-large"},
	}
}
