package main

import (
	"context"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// tokenCommands implements the command token and its subcommands.
type tokenCommands struct{ *tool }

func (t tokenCommands) command() *cli.Command {
	return noun("token tokens", "create, list and revoke tokens for the HTTP API",
		t.verb("create NAME", "create a token and print its secret once",
			`A program sends the secret in the header "Authorization: Bearer SECRET". The store has only a hash of it,
so the secret cannot be printed again. A viewer reads. An operator also stores and changes tasks. An admin
also reads the configuration, and changes settings and tokens.

Example:
  holdfast token create billing --role operator --expires 2160h`,
			t.create, outputFlag(), []cli.Flag{
				&cli.StringFlag{Name: "role", Usage: "`ROLE` of the token: viewer, operator or admin"},
				&cli.DurationFlag{Name: "expires", Usage: "the token expires after `DURATION`, for example 2160h; default never"},
			}, actorFlags()),
		t.verb("list", "list tokens, oldest first",
			`USED is exact to a minute.

Example:
  holdfast token list`,
			t.list, outputFlag(), sortFlag()),
		t.verb("revoke NAME...", "make tokens useless",
			`A running process refuses the token within a second. A revoked token stays in the list, and its name
is free for another token.

Example:
  holdfast token revoke billing`,
			t.revoke, actorFlags()),
	)
}

func (t tokenCommands) create(ctx context.Context, c *cli.Context) error {
	by, err := t.actor(c)
	if err != nil {
		return err
	}
	if !c.IsSet("role") {
		return usageOf(commandName(c), "a token needs a --role: viewer, operator or admin")
	}
	if c.IsSet("expires") && c.Duration("expires") <= 0 {
		return usageOf(commandName(c), "--expires %s must be more than 0", c.Duration("expires"))
	}
	name, role := c.Args().First(), store.TokenRole(c.String("role"))
	return t.withNewStore(ctx, c, func(b *app.Backend) error {
		secret, err := b.CreateToken(ctx, by, name, role, c.Duration("expires"))
		if err != nil {
			return err
		}
		t.say("created the token %s with the role %s; this is its secret, which is not shown again", name, role)
		err = t.printOne(c, surface.CreatedToken{Name: name, Role: role, Secret: secret}, secret)
		return stored(err, "the token exists; revoke it with: holdfast token revoke %s", name)
	})
}

func (t tokenCommands) list(ctx context.Context, c *cli.Context) error {
	return t.withStore(ctx, c, func(b *app.Backend) error {
		tokens, err := b.Store.Tokens(ctx)
		if err != nil {
			return err
		}
		return list(t.tool, c, "tokens", surface.NewTokens(tokens), "there are no tokens",
			column[surface.Token]{"name", func(k surface.Token) string { return k.Name }},
			column[surface.Token]{"role", func(k surface.Token) string { return string(k.Role) }},
			column[surface.Token]{"state", func(k surface.Token) string { return string(k.State) }},
			column[surface.Token]{"created", func(k surface.Token) string { return t.stamp(k.CreatedAt) }},
			column[surface.Token]{"used", func(k surface.Token) string { return t.stamp(k.UsedAt) }},
			column[surface.Token]{"expires", func(k surface.Token) string { return t.stamp(k.ExpiresAt) }},
			column[surface.Token]{"revoked", func(k surface.Token) string { return t.stamp(k.RevokedAt) }},
		)
	})
}

func (t tokenCommands) revoke(ctx context.Context, c *cli.Context) error {
	by, err := t.actor(c)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		var revoked []string
		var failed []error
		for _, name := range c.Args().Slice() {
			if err := b.Store.RevokeToken(ctx, by, name); err != nil {
				failed = append(failed, err)
				continue
			}
			revoked = append(revoked, name)
		}
		if len(revoked) > 0 {
			t.say("revoked: %s", strings.Join(revoked, ", "))
		}
		return someFailed(failed, len(revoked))
	})
}
