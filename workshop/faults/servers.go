package faults

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	lease           = 5 * time.Second  // the default of worker.lease
	consumerTimeout = 60 * time.Second // consumer timeout of the broker
	diskSize        = "3g"             // of the file system of each database
)

// servers are the RabbitMQ cluster and the databases, which the scripts of the project run.
type servers struct {
	root string // root folder of the project
	run  string // state folder of the scripts
}

// script runs a script of the project and returns its output.
func (s *servers) script(ctx context.Context, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.root, "scripts", name), arguments...)
	cmd.Env = append(os.Environ(), "RUN="+s.run, "NETNS=yes",
		fmt.Sprintf("RB_CONSUMER_TIMEOUT=%d", consumerTimeout.Milliseconds()), "RB_CHANNEL_TICK=5000", "PG_TMPFS="+diskSize,
		// Commits wait for the replica. By default the replica reconnects five seconds after a restart of the primary,
		// which is as long as a lease.
		"PG_OPTS=-c wal_retrieve_retry_interval=200ms")
	if bridge, err := os.ReadFile(filepath.Join(s.run, "cluster", "netns")); err == nil {
		cmd.Env = append(cmd.Env, "PG_LISTEN="+address(strings.TrimSpace(string(bridge)), 1))
	}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, strings.TrimSpace(problems.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// address returns the address of a host on the bridge.
func address(bridge string, host int) string { return fmt.Sprintf("10.77.%s.%d", bridge, host) }

func (s *servers) cluster(ctx context.Context, arguments ...string) (string, error) {
	return s.script(ctx, "private-cluster", arguments...)
}

func (s *servers) postgres(ctx context.Context, arguments ...string) (string, error) {
	return s.script(ctx, "private-postgres", arguments...)
}

// runAll runs the commands one after another until one fails.
func runAll(ctx context.Context, run func(context.Context, ...string) (string, error), commands ...string) error {
	for _, command := range commands {
		if _, err := run(ctx, strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// up starts the servers and waits until the replica is synchronous.
func (s *servers) up(ctx context.Context) error {
	if err := runAll(ctx, s.cluster, "up", "settle"); err != nil {
		return err
	}
	return runAll(ctx, s.postgres, "up", "replica-up", "replica-sync")
}

// wipe kills the servers and deletes their data.
func (s *servers) wipe() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, first := s.cluster(ctx, "wipe")
	_, second := s.postgres(ctx, "wipe")
	if first != nil {
		return first
	}
	return second
}

// databaseURL returns a URL that names both databases by their addresses on the bridge. Clients use the primary.
func (s *servers) databaseURL(ctx context.Context) (string, error) {
	bridge, err := os.ReadFile(filepath.Join(s.run, "cluster", "netns"))
	if err != nil {
		return "", err
	}
	inside, err := s.postgres(ctx, "url")
	if err != nil {
		return "", err
	}
	own, err := s.postgres(ctx, "port")
	if err != nil {
		return "", err
	}
	other, err := s.postgres(ctx, "replica-port")
	if err != nil {
		return "", err
	}
	u, err := url.Parse(inside)
	if err != nil {
		return "", err
	}
	host := address(strings.TrimSpace(string(bridge)), 1)
	u.Host = ""
	query := u.Query()
	for name, value := range map[string]string{"host": host + "," + host, "port": own + "," + other, "target_session_attrs": "read-write"} {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// versions returns the versions of the servers.
func (s *servers) versions(ctx context.Context) (broker, database string, err error) {
	if broker, err = s.cluster(ctx, "ctl", "1", "version"); err != nil {
		return "", "", err
	}
	database, err = s.postgres(ctx, "psql", "-Atc", "show server_version")
	return broker, database, err
}
