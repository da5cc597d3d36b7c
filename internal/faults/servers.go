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

// What the servers are told, and the project's own defaults that faults are measured by.
const (
	lease           = 5 * time.Second
	consumerTimeout = 60 * time.Second
	diskSize        = "3g" // of the file system that each database has for itself
)

// servers are the cluster and the database, as the project's scripts keep them.
type servers struct {
	root string // of the project
	run  string // the scripts' folder
}

// script runs one of the project's scripts and returns what it printed.
func (s *servers) script(ctx context.Context, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.root, "scripts", name), arguments...)
	cmd.Env = append(os.Environ(), "RUN="+s.run, "NETNS=yes",
		fmt.Sprintf("RB_CONSUMER_TIMEOUT=%d", consumerTimeout.Milliseconds()), "RB_CHANNEL_TICK=5000", "PG_TMPFS="+diskSize,
		// Commits wait for the replica, which else comes back five seconds after a restart of the primary: as long as a lease.
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

func address(bridge string, host int) string { return fmt.Sprintf("10.77.%s.%d", bridge, host) }

func (s *servers) cluster(ctx context.Context, arguments ...string) (string, error) {
	return s.script(ctx, "private-cluster", arguments...)
}

func (s *servers) postgres(ctx context.Context, arguments ...string) (string, error) {
	return s.script(ctx, "private-postgres", arguments...)
}

// all runs one command after the other until one fails.
func all(ctx context.Context, run func(context.Context, ...string) (string, error), commands ...string) error {
	for _, command := range commands {
		if _, err := run(ctx, strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// up starts everything, with the replica in step.
func (s *servers) up(ctx context.Context) error {
	if err := all(ctx, s.cluster, "up", "settle"); err != nil {
		return err
	}
	return all(ctx, s.postgres, "up", "replica-up", "replica-sync")
}

// wipe ends everything and deletes its data.
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

// databaseURL lists both databases, as seen from the ends: the one that takes writes is used.
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

// versions are the servers', for the report.
func (s *servers) versions(ctx context.Context) (broker, database string, err error) {
	if broker, err = s.cluster(ctx, "ctl", "1", "version"); err != nil {
		return "", "", err
	}
	database, err = s.postgres(ctx, "psql", "-Atc", "show server_version")
	return broker, database, err
}
