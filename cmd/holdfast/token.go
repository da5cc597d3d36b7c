package main

import (
	"context"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type tokenCommands struct{ *tool }

func (t tokenCommands) command() *cli.Command {
	return noun("token tokens", "create, list and revoke tokens for the HTTP API",
		t.verb("create NAME", "create a token and print its secret once",
			`A program sends the secret in the header "Authorization: Bearer SECRET". The store has only a hash of it,
so the secret cannot be printed again. A viewer reads. An operator also stores and changes tasks. An admin also reads
the configuration, and changes settings and tokens.

Example:
  holdfast token create billing --role operator --expires 2160h`,
			changes(t.tool, openNewStore, t.create), outputFlag()),
		t.verb("list", "list tokens, oldest first",
			`USED is exact to a minute.

Example:
  holdfast token list`,
			reads(t.tool, openCheckedStore, t.list), outputFlag(), sortFlag()),
		t.verb("revoke NAME...", "make tokens useless",
			`A running process refuses the token within a second. A revoked token stays in the list, and its name is
free for another token.

Example:
  holdfast token revoke billing`,
			changes(t.tool, openCheckedStore, t.revoke)),
	)
}

func (t tokenCommands) create(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r surface.NewToken) error {
	before, err := b.Store.Tokens(ctx)
	if err != nil {
		return err
	}
	created, err := surface.CreateToken(ctx, b, by, r)
	if err != nil {
		return err
	}
	if len(before) == 0 {
		t.say("this is the first token: from now on, people on this machine need one too, for the console and the HTTP API")
		if created.Role != store.Admin {
			t.hint("to create one that may do everything: holdfast token create NAME --role admin")
		}
	}
	t.say("created the token %s with the role %s; this is its secret, which is not shown again", created.Name, created.Role)
	err = printText(t.tool, c, created, created.Secret)
	return stored(err, "the token exists; revoke it with: holdfast token revoke %s", created.Name)
}

func (t tokenCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	tokens, err := b.Store.Tokens(ctx)
	if err != nil {
		return err
	}
	return printList(t.tool, c, "tokens", append([]store.Token{}, tokens...), "there are no tokens",
		column[store.Token]{"name", func(k store.Token) string { return k.Name }},
		column[store.Token]{"role", func(k store.Token) string { return string(k.Role) }},
		column[store.Token]{"state", func(k store.Token) string { return string(k.State) }},
		column[store.Token]{"created", func(k store.Token) string { return t.stamp(k.CreatedAt) }},
		column[store.Token]{"used", func(k store.Token) string { return t.stamp(k.UsedAt) }},
		column[store.Token]{"expires", func(k store.Token) string { return t.stamp(k.ExpiresAt) }},
		column[store.Token]{"revoked", func(k store.Token) string { return t.stamp(k.RevokedAt) }},
	)
}

func (t tokenCommands) revoke(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, _ struct{}) error {
	revoked, failed := forEach(c.Args().Slice(), func(name string) (string, error) { return name, b.Store.RevokeToken(ctx, by, name) })
	if len(revoked) > 0 {
		t.say("revoked: %s", strings.Join(revoked, ", "))
	}
	return someFailed(failed, len(revoked))
}
