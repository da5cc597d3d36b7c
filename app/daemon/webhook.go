package daemon

import (
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer/webhook"
)

// NewWebhook returns the handler of the task type http for a configuration. Producers also use it to check payloads. It
// returns an ErrInvalid if the webhook settings are invalid.
func NewWebhook(c configs.Config, version string) (*webhook.Handler, error) {
	secrets := make(map[string]webhook.Secret)
	for name, hosts := range c.Webhook.SecretHosts {
		secrets[name] = webhook.Secret{Keys: c.Webhook.Secrets[name], Hosts: hosts}
	}
	return webhook.New(webhook.Options{
		Version: version, AllowCIDRs: c.Webhook.AllowCIDRs, Timeout: c.Webhook.Timeout, MaxRetryAfter: c.Webhook.MaxRetryAfter,
		MaxResponse: c.Webhook.MaxResponse, RetryStatuses: c.Webhook.RetryStatuses, Secrets: secrets,
	})
}
