package configs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
)

// Validate returns joined *Errors for all values that are out of range or conflict with others. It does not check that
// database.url and amqp.urls fit together, because some commands need no broker.
func (c Config) Validate() error {
	var problems []error
	report := func(key, text string) {
		problems = append(problems, &Error{key, c.Origin(key), text})
	}
	settings := c.settings()
	inherited := make(map[string]string)
	for _, s := range settings {
		if suffix, ok := strings.CutPrefix(s.key, "defaults."); ok {
			inherited[suffix] = s.value.text()
		}
	}
	bad := make(map[string]bool) // keys with a value out of range, and the prefixes of their types
	for _, s := range settings {
		err := s.value.check()
		if err == nil {
			continue
		}
		bad[s.key] = true
		if _, suffix, ok := splitTypeKey(s.key); ok {
			bad[strings.TrimSuffix(s.key, suffix)] = true
			if inherited[suffix] == s.value.text() {
				continue // reported for defaults already
			}
		}
		if strings.HasPrefix(s.key, "defaults.") {
			bad["defaults."] = true
		}
		report(s.key, s.describe(err))
	}
	if len(c.AMQP.URLs) > 1 && slices.Contains(c.AMQP.URLs, EmbeddedBroker) {
		report("amqp.urls", "must be either "+EmbeddedBroker+" alone or URLs of RabbitMQ")
	}
	if len(c.Roles) == 0 {
		report("roles", "must name at least one role")
	}
	c.checkAPI(report)
	c.checkWebhook(bad, report)
	c.checkNotify(bad, report)
	if !bad["defaults."] {
		combination(c.Defaults, "defaults.", report)
	}
	for name, t := range c.Types {
		if key := typesPrefix + name + "."; !bad[key] {
			combination(t, key, report)
		}
	}
	return errors.Join(problems...)
}

// checkAPI reports conflicting settings of the role api.
func (c Config) checkAPI(report func(key, text string)) {
	if c.HasRole(RoleAPI) && c.Listen == "" {
		report("listen", "must be an address for the role api")
	}
	switch {
	case c.API.UserHeader != "" && len(c.API.TrustedProxies) == 0:
		report("api.user_header", "needs api.trusted_proxies, because any client could send the header")
	case c.API.UserHeader == "" && (len(c.API.TrustedProxies) > 0 || c.API.RoleHeader != "" || c.API.DefaultRole != ""):
		report("api.user_header", "must be set if another setting for trusted proxies is")
	case c.API.UserHeader != "" && c.API.RoleHeader == "" && c.API.DefaultRole == "":
		report("api.user_header", "needs api.role_header or api.default_role, so that the user has a role")
	case c.API.UserHeader != "" && strings.EqualFold(c.API.UserHeader, c.API.RoleHeader):
		report("api.role_header", "must be another header than api.user_header")
	}
}

// checkWebhook reports secrets without hosts, and hosts of secrets with a bad name. bad has the keys that were reported
// before.
func (c Config) checkWebhook(bad map[string]bool, report func(key, text string)) {
	for _, name := range slices.Sorted(maps.Keys(c.Webhook.Secrets)) {
		if len(c.Webhook.SecretHosts[name]) == 0 && !bad[secretsPrefix+name] {
			key := hostsPrefix + name
			report(secretsPrefix+name, fmt.Sprintf("needs the hosts to which it may sign requests; add %s: [api.example.com], or %s=api.example.com",
				key, variableFor(key)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Webhook.SecretHosts)) {
		if err := checkSecretName(name); err != nil {
			report(hostsPrefix+name, err.Error())
		}
	}
}

// checkNotify reports settings of notices that conflict with others. bad has the keys that were reported before.
func (c Config) checkNotify(bad map[string]bool, report func(key, text string)) {
	if c.Notify.URL == "" {
		return
	}
	if c.Notify.Secret != "" && len(c.Webhook.SecretHosts[c.Notify.Secret]) == 0 && !bad["notify.secret"] {
		report("notify.secret", "must be the name of a secret in webhook.secrets")
	}
	queues := []string{c.Defaults.Queue}
	for _, t := range c.Types {
		queues = append(queues, t.Queue)
	}
	if slices.Contains(queues, c.Notify.Queue) {
		report("notify.queue", "must not be the queue of a task type, because events of it are not announced")
	}
}

// combination reports values of a retry policy that are valid but conflict with each other.
func combination(t holdfast.TypeSettings, key string, report func(key, text string)) {
	p := t.Policy
	switch {
	case p.Strategy == holdfast.List && len(p.Delays) == 0:
		report(key+"retry.delays", "must have at least one delay for the strategy list")
	case p.Base == 0 && (p.Strategy == holdfast.Exponential || p.Strategy == holdfast.Linear):
		report(key+"retry.base", "must be more than 0s for the strategy "+string(p.Strategy))
	default:
		if err := p.Validate(); err != nil {
			report(key+"retry", err.Error())
		}
	}
}

// describe returns the text of an error about the value. The text does not contain the value of a secret.
func (s setting) describe(err error) string {
	if p, ok := errors.AsType[*problem](err); ok && s.secret {
		return "the value " + p.text
	}
	return err.Error()
}
