# Every target does its own set-up on a fresh Debian 12 or 13 with Go, as root or with sudo; see README.md.
MAKEFLAGS += --no-print-directory
BIN       := build/bin
SERVERS   := build/servers
CLIENTS   := build/clients
SUITES    := build/conformance
MATRIX    := build/matrix
PROGRAMS  := pfar pfard pfar-generator pfar-sandbox pfar-egress pfar-gateway pfar-setup pfar-console pfar-adapter pfar-chat
# A clone that belongs to somebody else has no version for git(1), and go build would stop.
VCS       := $(shell git rev-parse --verify -q HEAD >/dev/null 2>&1 && echo true || echo false)
# The version that is being worked on, and the one of this commit. VERSION=... on the command line is another.
RELEASE   := 0.1.0
VERSION   := $(shell packaging/version.sh $(RELEASE))
STAMP     := -X github.com/pfar/pfar/units.version=$(VERSION)
GO_BUILD  := CGO_ENABLED=0 go build -trimpath -buildvcs=$(VCS) -ldflags "-s -w $(STAMP)"
# make install RACE=1: programs that find their own races, for the machines of the tests.
ifneq ($(RACE),)
BIN       := build/race
GO_BUILD  := CGO_ENABLED=1 go build -race -trimpath -buildvcs=$(VCS) -ldflags "$(STAMP)"
endif
# Where packages go: the units name /usr/lib/pfar.
PREFIX    := /usr
ifneq ($(PREFIX),/usr)
$(error PREFIX is $(PREFIX), but the units name /usr/lib/pfar: leave it out, or use DESTDIR)
endif
LIB       := $(DESTDIR)$(PREFIX)/lib
SHARE     := $(DESTDIR)$(PREFIX)/share
# Debian's zsh reads this directory; that of others reads $(SHARE)/zsh/site-functions.
ZSH       := $(SHARE)/zsh/vendor-completions

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
NFPM        := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
REFERENCES  := $(addprefix github.com/modelcontextprotocol/go-sdk/conformance/everything-,server@v1.8.0 client@v1.8.0)

.PHONY: build compiled install uninstall packages package run test test-all test-packages test-race test-race-meetings test-conformance test-matrix test-soak test-e2e test-systemd test-systemd-trixie test-vm test-vm-trixie test-stalls test-fuzz check lint fuzz vulnerabilities bench soak clean

build:
	$(GO_BUILD) -o $(BIN)/ $(PROGRAMS:%=./cmd/%)

# $(call copy,FILES,DIRECTORY,MODE), if there are any
copy = $(if $(strip $(1)),install -D -m $(3) -t $(2) $(1))

# What is compiled for another processor does not run here.
HERE       = $(filter $(shell go env GOHOSTOS)/$(shell go env GOHOSTARCH),$(shell go env GOOS)/$(shell go env GOARCH))
COMPLETION = $(if $(HERE),$(BIN)/pfar,env -u GOOS -u GOARCH CGO_ENABLED=0 go run -trimpath ./cmd/pfar) completion
UNITS      = $(foreach kind,service socket target slice,$(wildcard units/$(1)*.$(kind)))
DOC       := $(SHARE)/doc/pfar
# Notes for an upgrade; apt-listchanges reads NEWS.Debian.gz.
NEWS      := $(DOC)/NEWS.gz

install: build
	@$(if $(DESTDIR),:,packaging/preinst upgrade)
	$(call copy,$(BIN)/pfar,$(DESTDIR)$(PREFIX)/bin,755)
	$(call copy,$(addprefix $(BIN)/,$(filter-out pfar pfar-generator,$(PROGRAMS))) packaging/upgrade packaging/rollback,$(LIB)/pfar,755)
	$(call copy,$(addprefix $(BIN)/,$(filter pfar-generator,$(PROGRAMS))),$(LIB)/systemd/system-generators,755)
	install -d $(LIB)/systemd/user-generators
	ln -sf ../system-generators/pfar-generator $(LIB)/systemd/user-generators/pfar-generator
	$(call copy,$(call UNITS,),$(LIB)/systemd/system,644)
	$(call copy,$(call UNITS,user/),$(LIB)/systemd/user,644)
	install -d $(LIB)/systemd/system/sysinit.target.wants
	ln -sf ../pfar-rollback.service $(LIB)/systemd/system/sysinit.target.wants/pfar-rollback.service
	install -D -m 644 packaging/sysusers.conf $(LIB)/sysusers.d/pfar.conf
	install -D -m 644 packaging/tmpfiles.conf $(LIB)/tmpfiles.d/pfar.conf
	install -D -m 644 packaging/modules-load.conf $(LIB)/modules-load.d/pfar.conf
	install -D -m 644 packaging/system.preset $(LIB)/systemd/system-preset/80-pfar.preset
	install -D -m 644 packaging/user.preset $(LIB)/systemd/user-preset/80-pfar.preset
	install -D -m 644 packaging/needrestart.conf $(DESTDIR)/etc/needrestart/conf.d/pfar.conf
	$(foreach section,1 5 7 8,install -d $(SHARE)/man/man$(section) &&) :
	for page in packaging/man/*; do gzip -9nc $$page >$(SHARE)/man/man$${page##*.}/$${page##*/}.gz || exit 1; done
	cd examples && find * -type f ! -name '*.go' -exec install -D -m 644 {} $(abspath $(DOC))/examples/{} \;
	install -D -m 644 packaging/apparmor $(DOC)/apparmor
	gzip -9nc packaging/NEWS >$(NEWS)
	chmod 644 $(NEWS)
	$(call copy,$(wildcard packaging/servers/*.json),$(SHARE)/pfar/servers,644)
	install -d $(SHARE)/bash-completion/completions $(DESTDIR)/etc/pfar/mcp.d $(DESTDIR)/etc/pfar/policies.d $(DESTDIR)/etc/pfar/clients.d
	install -d $(ZSH) $(SHARE)/fish/vendor_completions.d
	$(COMPLETION) bash >$(SHARE)/bash-completion/completions/pfar
	$(COMPLETION) zsh >$(ZSH)/_pfar
	$(COMPLETION) fish >$(SHARE)/fish/vendor_completions.d/pfar.fish
	@$(if $(DESTDIR),:,packaging/rollback drop)
	@$(if $(DESTDIR),:,packaging/next.sh)

# Takes away what install brought. /etc/pfar and /var/lib/pfar stay, with the vault and the audit.
uninstall:
	$(if $(DESTDIR),,packaging/rpm/preun 0)
	rm -f $(DESTDIR)$(PREFIX)/bin/pfar $(patsubst units/%,$(LIB)/systemd/system/%,$(call UNITS,)) $(patsubst units/%,$(LIB)/systemd/%,$(call UNITS,user/))
	rm -f $(LIB)/systemd/system/sysinit.target.wants/pfar-rollback.service
	rm -f $(LIB)/systemd/system-generators/pfar-generator $(LIB)/systemd/user-generators/pfar-generator
	rm -f $(LIB)/sysusers.d/pfar.conf $(LIB)/tmpfiles.d/pfar.conf $(LIB)/modules-load.d/pfar.conf
	rm -f $(LIB)/systemd/system-preset/80-pfar.preset $(LIB)/systemd/user-preset/80-pfar.preset $(DESTDIR)/etc/needrestart/conf.d/pfar.conf
	rm -f $(foreach page,$(notdir $(wildcard packaging/man/*)),$(SHARE)/man/man$(subst .,,$(suffix $(page)))/$(page).gz)
	rm -f $(SHARE)/bash-completion/completions/pfar $(ZSH)/_pfar $(SHARE)/fish/vendor_completions.d/pfar.fish
	rm -rf $(LIB)/pfar $(DOC) $(SHARE)/pfar
	rmdir $(SHARE)/fish/vendor_completions.d $(SHARE)/fish $(ZSH) $(dir $(ZSH)) $(DESTDIR)/etc/needrestart/conf.d $(DESTDIR)/etc/needrestart 2>/dev/null || : # unless others have files there
	$(if $(DESTDIR),,packaging/rpm/postun 0)

# Packages for Debian, Fedora, Arch, postmarketOS and their like: into build/packages, with their digests. Two builds of a commit
# are the same, byte for byte. ARCHES, FORMATS, COMPRESSION (of deb and rpm) and PACKAGES_DIR make fewer, faster, or elsewhere.
ARCHES       := amd64 arm64
FORMATS      := deb rpm apk archlinux
COMPRESSION  := xz
PACKAGES_DIR := build/packages
EPOCH         = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),$(shell date +%s))

packages:
	rm -rf $(PACKAGES_DIR)
	@$(foreach arch,$(ARCHES),$(foreach format,$(FORMATS),$(MAKE) package ARCH=$(arch) FORMAT=$(format) &&)) :
	cd $(PACKAGES_DIR) && sha256sum pfar*.* >SHA256SUMS

# One of them: ARCH=, FORMAT=.
package: export SOURCE_DATE_EPOCH := $(EPOCH)
package: STAGE = $(PACKAGES_DIR).work/$(ARCH)-$(FORMAT)
package:
	rm -rf $(STAGE) && mkdir -p $(PACKAGES_DIR)
	@umask 022; GOARCH=$(ARCH) $(MAKE) install DESTDIR=$(STAGE)/root BIN=$(PACKAGES_DIR).work/$(ARCH) $(if $(filter-out deb,$(FORMAT)),ZSH=$(STAGE)/root/usr/share/zsh/site-functions,NEWS=$(STAGE)/root/usr/share/doc/pfar/NEWS.Debian.gz)
	@umask 022; CGO_ENABLED=0 go run -trimpath ./packaging/pack -format $(FORMAT) -arch $(ARCH) -version '$(VERSION)' -compression $(COMPRESSION) -root $(STAGE)/root
	CGO_ENABLED=0 go run -trimpath $(NFPM) package --config $(STAGE)/nfpm.json --packager $(FORMAT) --target $(PACKAGES_DIR)/
	rm -rf $(STAGE)

# Brings examples/ up. ONCE=1 ends after the calls.
run: build $(SERVERS)/.installed
	$(GO_BUILD) -o $(BIN)/ ./tests/hostile
	tests/setup.sh bwrap
	ONCE=$(ONCE) tests/demo.sh $(BIN) $(SERVERS)

# Every test needs what these say, or goes without on its own.
E2E         := PFAR_TEST_SERVERS=$(abspath $(SERVERS)) PFAR_TEST_CLIENTS=$(abspath $(CLIENTS))
CONFORMANCE := PFAR_TEST_CONFORMANCE=$(abspath $(SUITES))
stage        = @tests/stages.sh run $(@:test-%=%)
# What has a stage of its own, because it takes whole programs, other machines or more than a minute.
WHOLE    := ./tests/conformance ./tests/e2e ./tests/soak ./tests/systemd ./tests/vm
PACKAGES  = $(filter-out $(WHOLE),$(patsubst github.com/pfar/pfar/%,./%,$(shell go list ./...)))
# Packages that start goroutines: the race detector is for them. What they share with others is compiled with it, too.
STARTS   := ^[^/"]*\bgo (func|[[:alnum:]_.]+)\(|\.Go\(
RACING    = $(filter $(PACKAGES),$(patsubst %/,./%,$(sort $(dir $(shell grep -rlE --include='*.go' --exclude='*_test.go' '$(STARTS)' cmd generator policies units)))))
# tests/systemd and tests/vm make their images as root.
MACHINES := test-systemd test-vm
# The same on Debian 13; without more the machines have Debian 12.
NEWER    := test-systemd-trixie test-vm-trixie
# undo's tests mount a file system with reflinks as root.
REFLINKS := mkfs.btrfs
ifneq ($(shell id -u),0)
MACHINES :=
NEWER    :=
REFLINKS :=
NOT_RUN  := echo "NOT RUN as an ordinary user: tests/systemd and tests/vm, whose images are made as root"
endif

# make test has -short: one example of what is proof by numbers. ALL=1 has the rest, and the race detector everywhere.
# Virtual machines, whose processors are emulated, and the soak are in make test-all alone.
ALL      ?=
SHORT     = $(if $(ALL),,-short)
# One test that hangs costs no more than this: packages and all of a stage that brings whole programs or machines up.
# It is generous: a machine with a slow kernel, and nothing of go's cache, needs three times the usual, and more if it has
# other work.
LIMIT     = -timeout $(if $(ALL),90m,30m)
LONG      = -timeout $(if $(ALL),180m,85m)
# Not of make test: cmd/pfar takes 117 seconds of processor with it, and 31 without.
RACED     = $(if $(ALL),$(PACKAGES),$(filter-out ./cmd/pfar $(PARTLY),$(RACING)))
# These take 303 seconds of processor with it, and 80 without. make test has all of their tests without it, and with it
# those of MEETINGS, in which goroutines meet: at random, in numbers, or at the end of one of them.
PARTLY   := $(addprefix ./cmd/,pfard pfar-adapter/remote pfar-console pfar-egress) ./policies/audit/trail \
	$(addprefix ./cmd/pfar-gateway/,approval runs serve serve/flowdesk)
MEETINGS := RandomWalk RandomWalkOfLearners RandomWalkOfSessions NoDeafPfard ManyQuestions VerificationYields WatchedOperators \
	SearchWhileSecretsAreStored HoldReplacesOnceForMany StoppingWhileItIsBeingWoken WakingWhileItIsBeingStopped PolicyIsTold \
	RemoteConsole SetUpLateAnswer LearningWaitsForACredential TokensAreRefreshed PageDies HangUp \
	Events ManyClients VerifyEndsWithTheRequest SessionEnds SignedActs \
	TunnelsInParallel ManyAskAtOnce TunnelIsCutWhenTheServiceEnds RaceLeaksNothing OpenedStreams ConnectionsBeyondTheLimitWait \
	OpenedWebSocket SpliceMovesEverything HandedOver PassRequestsStreams \
	CancelRace CancelAtEachMoment AtOnce Close Watch WatchedOnce LateIsBounded LateIsTold DecidedMeanwhile WaitsOverRestart \
	Chaos Parallel SlowReader Drain Signals Cancel WatchManyAtOnce OwnProcessesGoOn Parked EditedWhileItRuns ClientsGoOn \
	QuestionAfterAnothersCancellation ConnectJoins HeldComesBack ListedWhileItEnds \
	ManyLoseTheirSession SessionEndsUnderACall Cancelled Resume Rotation SyncInTime \
	Flood Waiters HeldHoldsUpNobody OneExecution HungUp \
	Run Restart Others YesOfACancelledRun CancelInTheGate Reuse
# How the tests of whole programs are built: go test then has what the programs are built of, too. Here and below -w leaves
# out what debuggers want, a third of what linking takes.
BUILT     = $(if $(ALL),env CGO_ENABLED=1 go test -race -trimpath,env CGO_ENABLED=0 go test -trimpath -short) -ldflags=-w

# Sixteen to twenty minutes on two processors; the aim is twelve. What stages need is installed first: make gives the
# place of a stage that waits for it to one that does not, and the longest ones would come last. It is compiled first,
# too: stages that begin together would each compile the same.
test:
	@$(MAKE) --no-print-directory --jobs=4 $(SERVERS)/.installed $(CLIENTS)/.installed $(SUITES)/.installed compiled
	@tests/stages.sh all $(filter-out test-vm%,$(MACHINES)) test-e2e test-race test-race-meetings $(filter-out test-vm%,$(NEWER)) test-packages test-conformance
	@$(if $(MACHINES),,$(NOT_RUN))

# Everything, once at the end of a larger change.
test-all:
	@ALL=1 tests/stages.sh all $(MACHINES) $(NEWER) test-e2e test-race test-conformance test-matrix test-soak test-stalls test-fuzz
	@$(if $(MACHINES),,$(NOT_RUN))

# With the flags of whatever builds programs or tests without the race detector, so that go's cache has it for all of them.
compiled:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false ./...

test-packages:
	@tests/setup.sh bwrap ip nft curl openssl postgres requests man zstd dbus-daemon $(REFLINKS)
	$(stage) env CGO_ENABLED=0 go test -trimpath -ldflags=-w $(SHORT) $(LIMIT) $(filter-out $(RACED),$(PACKAGES))

test-race:
	@tests/setup.sh bwrap ip nft curl openssl requests gcc dbus-daemon $(REFLINKS) $(if $(ALL),lintian man rpm rpmlint debootstrap qemu-aarch64-static zstd)
	$(stage) env CGO_ENABLED=1 go test -race -trimpath -ldflags=-w -p 2 $(SHORT) $(LIMIT) $(RACED)

# Not of test-all, whose test-race has all of these.
empty :=
test-race-meetings:
	@tests/setup.sh bwrap ip nft curl openssl gcc
	$(stage) env CGO_ENABLED=1 go test -race -trimpath -ldflags=-w -p 2 -short $(LIMIT) -run '^Test($(subst $(empty) ,|,$(strip $(MEETINGS))))$$' $(PARTLY)

test-conformance: $(SUITES)/.installed
	@tests/setup.sh bwrap ip curl $(if $(ALL),gcc)
	$(stage) env $(CONFORMANCE) $(BUILT) $(LIMIT) ./tests/conformance

# A real homeserver, from a Go module of its own: what it needs, pfar does not.
test-matrix:
	$(stage) tests/homeserver/run.sh $(MATRIX) $(BUILT) -count=1 $(LIMIT) ./cmd/pfar-chat/...

test-soak: $(SERVERS)/.installed
	@tests/setup.sh bwrap ip nft gcc
	$(stage) env $(E2E) $(BUILT) $(LIMIT) ./tests/soak

test-e2e: $(SERVERS)/.installed $(CLIENTS)/.installed
	@tests/setup.sh bwrap ip nft gcc postgres requests venv curl socat nginx chromium Xtigervnc
	$(stage) env $(E2E) $(BUILT) $(LONG) -parallel 5 ./tests/e2e

# pfar as it is installed, on a systemd of its own. Not from go's cache: it does not see what make builds.
test-systemd: $(SERVERS)/.installed $(CLIENTS)/.installed
	@tests/setup.sh nspawn ip nft gcc chromium Xtigervnc debootstrap rpm $(if $(ALL),pacman)
	$(stage) env $(DEBIAN) $(E2E) $(BUILT) -count=1 $(LONG) -parallel 3 $(ONLY) ./tests/systemd

# The same on Debian's kernel in a virtual machine: limits, the host's firewall, boot order, clocks and power cuts.
test-vm:
	@tests/setup.sh debootstrap qemu-system-x86_64 mke2fs dpkg-deb swtpm
	$(stage) env $(DEBIAN) $(BUILT) -count=1 $(LONG) ./tests/vm

# The same on machines that have Debian 13; without more they have Debian 12. Of make test where the two differ: what
# systemd makes of the units.
DIFFER   := Boots|Sandbox|Installed|Users|UsersAndDirectories|UnitsVerify|UnitsSecurity|UnitsConfine|Namespaces|DeclaredServersStartAtBoot|TheBridgeIsHeld
test-systemd-trixie: $(SERVERS)/.installed $(CLIENTS)/.installed
	@$(MAKE) DEBIAN=PFAR_TEST_DEBIAN=trixie ONLY='$(if $(ALL),,-run "^Test($(DIFFER))\b")' stage='$(stage)' test-systemd

test-vm-trixie:
	@$(MAKE) DEBIAN=PFAR_TEST_DEBIAN=trixie stage='$(stage)' test-vm

# While processes are stopped at random, for seconds, as on a machine that has too much to do.
test-stalls: $(SERVERS)/.installed $(CLIENTS)/.installed
	@tests/setup.sh bwrap ip nft curl openssl socat nginx postgres requests venv chromium Xtigervnc dbus-daemon $(REFLINKS)
	$(stage) env CGO_ENABLED=0 $(E2E) go run ./tests/stalls go test -trimpath -short -count=1 -timeout 180m -parallel 6 $(PACKAGES) ./tests/e2e

test-fuzz:
	$(stage) $(MAKE) fuzz FUZZTIME=5s

check: lint test

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

# Every fuzz target of the module, one after the other: make fuzz FUZZTIME=1m. What one finds is in testdata/fuzz of its package.
FUZZTIME ?= 10s
fuzz:
	@grep -roE --include='*_test.go' --exclude-dir=build '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|/[^/]*:func | |' | sort | while read -r package name; do \
		echo "$$package $$name" && \
		go test "$$package" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s || exit 1; done

# Apart from check: it asks https://vuln.go.dev, which is not to be reached from everywhere.
vulnerabilities:
	go run $(GOVULNCHECK) ./...

# Each row runs, also if one before it exceeds a limit, as any may on a busy machine; then bench fails at its end.
EXCEEDED := build/bench.exceeded
row       = $(1) || echo "$(lastword $(1))" >>$(EXCEEDED)
micro     = $(call row,CGO_ENABLED=0 go test -run '^$$' -bench '$(1)' -benchtime 2s $(2))
bench: $(SERVERS)/.installed $(CLIENTS)/.installed
	tests/setup.sh bwrap ip $(REFLINKS)
	@rm -f $(EXCEEDED)
	$(call micro,^BenchmarkBrokered$$,./cmd/pfar-egress)
	$(call micro,^BenchmarkMany$$,./cmd/pfar-generator)
	$(call micro,^BenchmarkGate(Granted|URL)?$$,./cmd/pfar-gateway/enforce)
	$(call micro,^BenchmarkWaiting$$,./cmd/pfar-gateway/runs)
	$(call micro,^BenchmarkSearchOfMany$$,./cmd/pfar-gateway/serve)
	$(call micro,^BenchmarkStep$$,./cmd/pfar-gateway/serve/flowdesk)
	$(call row,CGO_ENABLED=0 go test -run '^$$' -bench '^BenchmarkAsk$$' -benchtime 1x ./cmd/pfar-gateway/serve/flowdesk)
	$(call micro,^BenchmarkFlood$$,./cmd/pfar-console)
	$(call micro,^BenchmarkKeepWrite$$,./cmd/pfar-sandbox/undo)
	$(call row,CGO_ENABLED=0 $(E2E) go test -run '^$$' -bench . -benchtime 1x -timeout 20m ./tests/e2e)
	@if [ "$$(id -u)" = 0 ]; then tests/setup.sh nspawn nft chromium Xtigervnc && \
	{ $(call row,$(E2E) go test -run '^$$' -bench . -benchtime 1x -timeout 20m ./tests/systemd); }; \
	else echo "NOT RUN as an ordinary user: the benchmarks of tests/systemd"; fi
	$(call row,CGO_ENABLED=0 PFAR_TEST_SERVERS=$(abspath $(SERVERS)) go run ./tests/bench)
	@if [ -e $(EXCEEDED) ]; then echo "a limit is exceeded, or a benchmark has failed, in:"; cat $(EXCEEDED); exit 1; fi

# Calls all the time while everything around them is killed, restarted and edited: make soak DURATION=1h
DURATION ?= 10m
soak: $(SERVERS)/.installed
	tests/setup.sh bwrap ip nft gcc
	CGO_ENABLED=1 PFAR_TEST_SERVERS=$(abspath $(SERVERS)) go test -race -count=1 -v -timeout 0 ./tests/soak -duration $(DURATION)

clean:
	rm -rf build

# Real MCP servers from npm.
$(SERVERS)/.installed: packaging/servers/package.json packaging/servers/package-lock.json
	tests/npm.sh $(SERVERS) $^
	touch $@

# MCP clients from npm for the tests, and the Node.js that the newest of them need, as Debian's is older.
$(CLIENTS)/.installed: tests/clients/mcp/package.json tests/clients/mcp/package-lock.json
	tests/npm.sh $(CLIENTS) $^
	touch $@

# MCP's conformance suites, the Node that they need (Debian's is too old), and the server and client that they are tried
# on.
$(SUITES)/.installed: tests/conformance/package.json tests/conformance/package-lock.json Makefile
	tests/npm.sh $(SUITES) $(filter %.json,$^)
	CGO_ENABLED=0 GOBIN=$(abspath $(SUITES))/bin go install -trimpath $(REFERENCES)
	touch $@
