package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
)

// serverVersions returns the names and versions of the servers that the systems need.
func serverVersions(ctx context.Context, list []system) (versions []string, err error) {
	for _, server := range []struct {
		variable, name string
		version        func(context.Context) (string, error)
	}{
		{databaseURL, "PostgreSQL", postgresVersion}, {amqpURL, "RabbitMQ", rabbitVersion}, {redisURL, "Redis", redisVersion},
	} {
		if !slices.ContainsFunc(list, func(s system) bool { return slices.Contains(s.servers, server.variable) }) {
			continue
		}
		version, err := server.version(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the version of the server in %s: %w", server.variable, err)
		}
		versions = append(versions, server.name+" "+version)
	}
	return versions, nil
}

func postgresVersion(ctx context.Context) (version string, err error) {
	conn, err := pgx.Connect(ctx, os.Getenv(databaseURL))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "show server_version").Scan(&version)
	version, _, _ = strings.Cut(version, " ") // the version of the distribution follows
	return version, err
}

func rabbitVersion(context.Context) (string, error) {
	conn, err := amqp.Dial(os.Getenv(amqpURL))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return fmt.Sprint(conn.Properties["version"]), nil
}

func redisVersion(ctx context.Context) (string, error) {
	client, err := dialRedis()
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(version), nil
		}
	}
	return "", fmt.Errorf("no version in the answer to INFO: %q", info)
}

// moduleVersions returns the versions of all Go modules in this program, and of graphile-worker.
func moduleVersions() (map[string]string, error) {
	versions := make(map[string]string)
	var err error
	if versions[graphileModule], err = graphileVersion(); err != nil {
		return nil, fmt.Errorf("read the version of %s: %w", graphileModule, err)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			versions[module.Path] = module.Version
		}
	}
	return versions, nil
}
