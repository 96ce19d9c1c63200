package configs

import (
	"fmt"
	"math"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// ownLog checks the settings of the agent's own log, with the rules of a kubelet.
func (c checker) ownLog(k *kubeletconfigv1beta1.KubeletConfiguration) {
	log := k.Logging
	const formats = "logging.format"
	oneOf(c, formats, log.Format, "text", "json")
	c.that(log.Format != "json" || c.gate(k, "LoggingBetaOptions"), formats,
		"%q needs the feature gate LoggingBetaOptions", log.Format)
	c.that(log.FlushFrequency.Duration.Duration > 0, "logging.flushFrequency", "%v must be greater than zero",
		log.FlushFrequency.Duration.Duration)
	c.that(log.Verbosity <= math.MaxInt32, "logging.verbosity", "%d must be %d or less", log.Verbosity, math.MaxInt32)
	c.that(len(log.VModule) == 0 || log.Format == "text", "logging.vmodule", "only format text has levels per file")
	for i, item := range log.VModule {
		path := fmt.Sprintf("logging.vmodule[%d].", i)
		c.that(item.FilePattern != "", path+"filePattern", "must not be empty")
		c.that(!strings.ContainsAny(item.FilePattern, "=,"), path+"filePattern",
			"%q must have no equals sign and no comma", item.FilePattern)
		c.that(item.Verbosity <= math.MaxInt32, path+"verbosity", "%d must be %d or less", item.Verbosity, math.MaxInt32)
	}
	alpha := c.gate(k, "LoggingAlphaOptions")
	for format, o := range map[string]logsapi.OutputRoutingOptions{
		"text": log.Options.Text.OutputRoutingOptions,
		"json": log.Options.JSON.OutputRoutingOptions,
	} {
		const message = "needs the feature gate LoggingAlphaOptions"
		c.that(alpha || !o.SplitStream, "logging.options."+format+".splitStream", message)
		c.that(alpha || o.InfoBufferSize.IsZero(), "logging.options."+format+".infoBufferSize", message)
	}
}
